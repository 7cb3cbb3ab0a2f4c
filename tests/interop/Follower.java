// A consumer with a rack: `java -cp JARS Follower.java SERVERS RACK COUNT` reads so many records of `orders-0`, and
// prints the ids of the nodes that it has fetched them from, by Apache Kafka's own metrics.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class Follower {
    public static void main(String[] arguments) {
        TopicPartition orders = new TopicPartition("orders", 0);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "client.rack", arguments[1],
            "client.id", "reader",
            "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> reader =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            reader.assign(List.of(orders));
            int left = Integer.parseInt(arguments[2]);
            long until = System.currentTimeMillis() + 30_000;
            while (left > 0 && System.currentTimeMillis() < until) {
                left -= reader.poll(Duration.ofMillis(100)).count();
            }
            TreeSet<String> replicas = new TreeSet<>();
            reader.metrics().forEach((name, metric) -> {
                if (name.name().equals("preferred-read-replica")) {
                    replicas.add(metric.metricValue().toString());
                }
            });
            System.out.println(left + " left, preferred " + replicas);
        }
    }
}
