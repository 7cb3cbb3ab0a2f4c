// A producer, a consumer and an admin client that push their metrics: `java -cp JARS Telemetry SERVERS TOPIC` prints their client
// instance ids as JSON.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Telemetry {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private static Map<String, Object> settings(String servers, String name) {
        // Admin clients do not push by default.
        return Map.of(
                "bootstrap.servers", servers, "client.id", name, "enable.metrics.push", "true",
                "group.id", "g", "auto.offset.reset", "earliest");
    }

    private static String text(Uuid id) {
        return new java.util.UUID(id.getMostSignificantBits(), id.getLeastSignificantBits()).toString();
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        Map<String, String> ids = new TreeMap<>();
        try (var producer = new KafkaProducer<>(settings(servers, "producer"), new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(settings(servers, "consumer"), new StringDeserializer(), new StringDeserializer());
                var admin = Admin.create(settings(servers, "admin"))) {
            producer.send(new ProducerRecord<>(arguments[1], "value")).get();
            consumer.subscribe(List.of(arguments[1]));
            while (consumer.poll(Duration.ofMillis(50)).isEmpty()) {
                // Not assigned yet.
            }
            admin.describeCluster().nodes().get();
            ids.put("producer", text(producer.clientInstanceId(PATIENCE)));
            ids.put("consumer", text(consumer.clientInstanceId(PATIENCE)));
            ids.put("admin", text(admin.clientInstanceId(PATIENCE)));
            long end = System.nanoTime() + Duration.ofMillis(600).toNanos();
            while (System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(50));
            }
        }
        StringBuilder json = new StringBuilder();
        ids.forEach((name, id) -> json.append(json.length() == 0 ? "{" : ",").append('"' + name + "\":\"" + id + '"'));
        System.out.println(json + "}");
    }
}
