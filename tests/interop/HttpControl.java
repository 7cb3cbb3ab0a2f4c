// Rules, nodes and clocks of a running cluster from Java, with the JDK's own HTTP client, and what Apache Kafka's
// clients see of them: `java -cp JARS HttpControl.java SERVERS URL TOKEN` prints one JSON value.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class HttpControl {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition ORDERS = new TopicPartition("orders", 0);

    private final HttpClient http = HttpClient.newHttpClient();
    private final String url;
    private final String token;

    HttpControl(String url, String token) {
        this.url = url;
        this.token = token;
    }

    JsonNode ask(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
            .header("Authorization", "Bearer " + token)
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .timeout(Duration.ofSeconds(30))
            .build();
        HttpResponse<String> response = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IllegalStateException(response.statusCode() + ": " + response.body());
        }
        return JSON.readTree(response.body());
    }

    private static Map<String, Object> settings(String servers, Object... more) {
        Map<String, Object> settings = new LinkedHashMap<>();
        settings.put("bootstrap.servers", servers);
        settings.put("retry.backoff.ms", 50);
        settings.put("reconnect.backoff.max.ms", 100);
        for (int i = 0; i < more.length; i += 2) {
            settings.put((String) more[i], more[i + 1]);
        }
        return settings;
    }

    private static KafkaConsumer<String, String> reader(String servers, Object... more) {
        Map<String, Object> settings = settings(servers, more);
        KafkaConsumer<String, String> reader =
            new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        reader.assign(List.of(ORDERS));
        return reader;
    }

    private static long read(KafkaConsumer<String, String> reader, int count) {
        long until = System.currentTimeMillis() + 30_000;
        int found = 0;
        while (found < count && System.currentTimeMillis() < until) {
            for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(100))) {
                found++;
            }
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        HttpControl control = new HttpControl(arguments[1], arguments[2]);
        Map<String, Object> seen = new LinkedHashMap<>();
        try (Admin admin = Admin.create(settings(servers));
             KafkaProducer<String, String> producer = new KafkaProducer<>(
                 settings(servers, "max.in.flight.requests.per.connection", 1, "batch.size", 0),
                 new StringSerializer(), new StringSerializer())) {
            NewTopic topic = new NewTopic("orders", Optional.of(1), Optional.of((short) 3));
            admin.createTopics(List.of(topic)).all().get();

            control.ask("POST", "/rules",
                "[[fault]]\nname = 'moved'\napi = 'Produce'\nanswer = 'NOT_LEADER_OR_FOLLOWER'\ntimes = 2\n");
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>("orders", "" + i)).get();
            }
            seen.put("rules", control.ask("GET", "/rules", ""));
            seen.put("history", control.ask("GET", "/history", "").size());
            control.ask("DELETE", "/rules", "");
            try {
                control.ask("POST", "/rules", "[[fault]]\napi = 'Produse'\ndrop = 'before'\n");
            } catch (IllegalStateException refused) {
                seen.put("refused", refused.getMessage());
            }

            // Another node leads, and the last three records are gone.
            try (KafkaConsumer<String, String> careful = reader(servers, "auto.offset.reset", "none");
                 KafkaConsumer<String, String> easy = reader(servers, "auto.offset.reset", "earliest")) {
                for (KafkaConsumer<String, String> reader : List.of(careful, easy)) {
                    reader.seek(ORDERS, 0);
                    read(reader, 10);
                }
                seen.put("end", control.ask("POST", "/partitions/orders/0/unclean-election/3", ""));
                try {
                    read(careful, 1);
                } catch (LogTruncationException truncated) {
                    seen.put("divergent", truncated.divergentOffsets().get(ORDERS).offset());
                }
                producer.send(new ProducerRecord<>("orders", "new")).get();
                seen.put("read after the truncation", read(easy, 1));
                seen.put("position", easy.position(ORDERS));
            }

            // A killed node comes back.
            control.ask("POST", "/nodes/2/kill", "");
            seen.put("killed", control.ask("POST", "/nodes/2/stop", "").get(1).get("runs"));
            producer.send(new ProducerRecord<>("orders", "while it is away")).get();
            seen.put("started", control.ask("POST", "/nodes/2/start", "").get(1).get("runs"));

            long shared = control.ask("POST", "/clock/0", "").get("now_ms").asLong();
            long ahead = control.ask("POST", "/nodes/3/clock/3600000", "").get("now_ms").asLong();
            seen.put("hours ahead", (ahead - shared) / 3_600_000);
        }
        System.out.println(JSON.writeValueAsString(seen));
    }
}
