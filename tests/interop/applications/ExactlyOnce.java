// Copies a topic with Flink, exactly once: `java -cp JARS ExactlyOnce SERVERS COUNT` reads the COUNT records of `in`, and writes
// them to `out` in transactions that end with checkpoints. The job fails once after half of them, and restarts from a checkpoint.

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public final class ExactlyOnce {
    // Of this process, in which all tasks run.
    private static final AtomicInteger SEEN = new AtomicInteger();
    private static final AtomicInteger FAILURES = new AtomicInteger();

    public static final class Fragile implements MapFunction<String, String> {
        private final int failsAt;

        Fragile(int failsAt) {
            this.failsAt = failsAt;
        }

        @Override
        public String map(String value) throws Exception {
            Thread.sleep(1); // so that several checkpoints happen
            if (SEEN.incrementAndGet() == failsAt) {
                FAILURES.incrementAndGet();
                throw new IllegalStateException("the job fails, as it should");
            }
            return value.toUpperCase();
        }
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1");
        settings.setString("restart-strategy.fixed-delay.delay", "100 ms");
        settings.setString("execution.checkpointing.interval", "150 ms");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        var environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        var source = KafkaSource.<String>builder()
                .setBootstrapServers(arguments[0])
                .setTopics("in")
                .setGroupId("flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        var sink = KafkaSink.<String>builder()
                .setBootstrapServers(arguments[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink")
                .setProperty("transaction.timeout.ms", "60000")
                .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                        .setTopic("out")
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "in")
                .map(new Fragile(count / 2))
                .sinkTo(sink);
        environment.execute();
        System.out.println(FAILURES.get());
    }
}
