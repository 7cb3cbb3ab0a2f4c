"""The Spark data source beside Spark's own Kafka connector and beside tasks that use confluent-kafka."""
