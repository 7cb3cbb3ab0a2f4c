// What Apache Kafka's client does in the situations of test_java.py: `java -cp JARS Bugs.java SCENARIO SERVERS TOPIC`
// prints a line after each step, and reads one from its input before the next one.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Bugs {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    private static final Duration SOON = Duration.ofMillis(100);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", arguments[1], "group.id", "g", "auto.offset.reset", "earliest",
                "enable.auto.commit", false, "delivery.timeout.ms", 8000, "request.timeout.ms", 4000));
        String topic = arguments[2];
        switch (arguments[0]) {
            case "send" -> send(settings, topic);
            case "commit" -> commit(settings, new TopicPartition(topic, 0));
            default -> read(settings, topic);
        }
    }

    /** Sends two records. */
    private static void send(Map<String, Object> settings, String topic) throws Exception {
        settings.keySet().removeAll(List.of("group.id", "auto.offset.reset", "enable.auto.commit"));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String value : List.of("one", "two")) {
                producer.send(new ProducerRecord<>(topic, value)).get();
                step("sent " + value);
            }
        }
    }

    /** Commits offset 1 and then 2 with commitAsync, as long as that fails. */
    private static void commit(Map<String, Object> settings, TopicPartition partition) throws Exception {
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            for (long offset = 1; offset <= 2; offset++) {
                var offsets = Map.of(partition, new OffsetAndMetadata(offset));
                AtomicBoolean stored = new AtomicBoolean();
                while (!stored.get()) {
                    consumer.commitAsync(offsets, (done, error) -> stored.compareAndSet(false, error == null));
                    consumer.poll(SOON);
                }
                step("committed " + offset);
            }
        }
    }

    /** Reads records as a member of the group, for ever. */
    private static void read(Map<String, Object> settings, String topic) throws Exception {
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (true) {
                for (var one : consumer.poll(SOON)) {
                    step("read " + one.value());
                }
            }
        }
    }

    private static void step(String done) throws Exception {
        System.out.println(done);
        if ("end".equals(INPUT.readLine())) {
            System.exit(0);
        }
    }
}
