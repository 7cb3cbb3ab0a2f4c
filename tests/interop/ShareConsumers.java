// What Apache Kafka's KafkaShareConsumer does with a broker: `java -cp JARS ShareConsumers.java SCENARIO HOST:PORT TOPIC`
// prints one JSON value. The topic is empty and has one partition; its name is also that of the share group. main()
// lists the scenarios.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RecordDeserializationException;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class ShareConsumers {
    private static final Duration SOON = Duration.ofMillis(100);
    private static final long WAIT_MS = 60_000;

    private final String server;
    private final String topic;

    private ShareConsumers(String server, String topic) {
        this.server = server;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        ShareConsumers self = new ShareConsumers(arguments[1], arguments[2]);
        Map<String, Callable<Object>> scenarios = new HashMap<>();
        scenarios.put("implicit", self::implicit);
        scenarios.put("explicit", self::explicit);
        scenarios.put("close", self::close);
        scenarios.put("time-out", self::timeOut);
        scenarios.put("renew", self::renew);
        scenarios.put("two", self::two);
        scenarios.put("limit", self::limit);
        scenarios.put("transactions", self::transactions);
        scenarios.put("undecodable", self::undecodable);
        self.configure("share.auto.offset.reset", "earliest");
        System.out.println(new ObjectMapper().writeValueAsString(scenarios.get(arguments[0]).call()));
    }

    // --- clients

    private Map<String, Object> settings(Object... more) {
        Map<String, Object> made = map("bootstrap.servers", server);
        made.putAll(map(more));
        return made;
    }

    private <T> KafkaShareConsumer<String, T> consumer(Class<?> deserializer, Object... more) {
        Map<String, Object> settings = settings(
                "group.id", topic,
                "key.deserializer", StringDeserializer.class,
                "value.deserializer", deserializer);
        settings.putAll(map(more));
        KafkaShareConsumer<String, T> made = new KafkaShareConsumer<>(settings);
        made.subscribe(List.of(topic));
        return made;
    }

    private KafkaShareConsumer<String, String> implicitConsumer(Object... more) {
        return consumer(StringDeserializer.class, more);
    }

    private KafkaShareConsumer<String, String> explicitConsumer(Object... more) {
        Map<String, Object> settings = map("share.acknowledgement.mode", "explicit");
        settings.putAll(map(more));
        List<Object> pairs = new ArrayList<>();
        settings.forEach((name, value) -> pairs.addAll(List.of(name, value)));
        return consumer(StringDeserializer.class, pairs.toArray());
    }

    private KafkaProducer<String, String> producer(Object... more) {
        Map<String, Object> settings = settings(
                "key.serializer", StringSerializer.class,
                "value.serializer", StringSerializer.class,
                // Only flush() ends a batch.
                "linger.ms", 60_000,
                "delivery.timeout.ms", 120_000);
        settings.putAll(map(more));
        return new KafkaProducer<>(settings);
    }

    /** Produces "first", "first + 1", ... in one batch. */
    private void produce(int first, int count) {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int number = first; number < first + count; number++) {
                producer.send(new ProducerRecord<>(topic, String.valueOf(number)));
            }
            producer.flush();
        }
    }

    private void configure(String name, String value) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, topic);
            AlterConfigOp set = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get();
        }
    }

    /** How many records are not done. Kafka stores start offsets later than krammar, so they are not compared. */
    private long lag() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            SharePartitionOffsetInfo found = admin
                    .listShareGroupOffsets(Map.of(topic, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(topic).get().get(new TopicPartition(topic, 0));
            return found.lag().orElse(-1L);
        }
    }

    // --- helpers

    private static void until(String what, BooleanSupplier condition) {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("never seen: " + what);
            }
        }
    }

    private static Map<String, Object> map(Object... pairs) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            made.put((String) pairs[at], pairs[at + 1]);
        }
        return made;
    }

    /** The simple name of what an action throws, or "nothing". */
    private static String thrown(Runnable action) {
        try {
            action.run();
            return "nothing";
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName();
        }
    }

    private static <T> List<ConsumerRecord<String, T>> poll(KafkaShareConsumer<String, T> consumer) {
        List<ConsumerRecord<String, T>> found = new ArrayList<>();
        until("records", () -> {
            consumer.poll(SOON).forEach(found::add);
            return !found.isEmpty();
        });
        return found;
    }

    /** Offset and delivery count of each record. */
    private static <T> List<List<Long>> plain(Collection<ConsumerRecord<String, T>> records) {
        return records.stream()
                .map(record -> List.of(record.offset(), (long) record.deliveryCount().orElse((short) -1)))
                .toList();
    }

    /** The errors of a commit, one for each partition. */
    private static List<String> errors(Map<TopicIdPartition, Optional<KafkaException>> results) {
        return results.values().stream()
                .map(error -> error.map(each -> each.getClass().getSimpleName()).orElse("none"))
                .toList();
    }

    // --- scenarios

    private Object implicit() throws Exception {
        produce(0, 10);
        Map<String, Object> said = map();
        TreeSet<Long> called = new TreeSet<>();
        List<String> problems = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = implicitConsumer()) {
            consumer.setAcknowledgementCommitCallback((offsets, exception) -> {
                offsets.values().forEach(called::addAll);
                if (exception != null) {
                    problems.add(exception.getClass().getSimpleName());
                }
            });
            List<ConsumerRecord<String, String>> records = poll(consumer);
            said.put("read", plain(records));
            said.put("values", records.stream().map(ConsumerRecord::value).toList());
            said.put("lock", consumer.acquisitionLockTimeoutMs().orElse(-1));
            said.put("acknowledge", thrown(() -> consumer.acknowledge(records.get(0))));
            // The next poll acknowledges, and calls back.
            until("a callback", () -> {
                consumer.poll(SOON);
                return called.size() == 10;
            });
            said.put("called", new TreeSet<>(called));
            said.put("problems", problems);
            said.put("lag", lag());
            produce(10, 5);
            said.put("more", plain(poll(consumer)));
            said.put("commit", errors(consumer.commitSync(Duration.ofSeconds(30))));
            said.put("lag after a commit", lag());
        }
        return said;
    }

    private Object explicit() throws Exception {
        produce(0, 6);
        Map<String, Object> said = map();
        try (KafkaShareConsumer<String, String> consumer = explicitConsumer()) {
            List<ConsumerRecord<String, String>> records = poll(consumer);
            said.put("first", plain(records));
            consumer.acknowledge(records.get(0));
            consumer.acknowledge(records.get(1), AcknowledgeType.RELEASE);
            consumer.acknowledge(records.get(2), AcknowledgeType.REJECT);
            consumer.acknowledge(records.get(3), AcknowledgeType.ACCEPT);
            consumer.acknowledge(records.get(4), AcknowledgeType.RELEASE);
            said.put("with one left", thrown(() -> consumer.poll(SOON)));
            consumer.acknowledge(records.get(5));
            said.put("commit", errors(consumer.commitSync()));
            said.put("twice", thrown(() -> consumer.acknowledge(records.get(5))));
            said.put("lag", lag());
            Map<Long, List<Long>> again = new TreeMap<>();
            // Released five times, they are archived.
            until("the last delivery", () -> {
                for (ConsumerRecord<String, String> record : consumer.poll(SOON)) {
                    again.computeIfAbsent(record.offset(), offset -> new ArrayList<>())
                            .add((long) record.deliveryCount().orElse((short) -1));
                    consumer.acknowledge(record, AcknowledgeType.RELEASE);
                }
                consumer.commitSync();
                return again.values().stream().mapToInt(List::size).sum() == 8;
            });
            said.put("again", again);
            said.put("lag at the end", lag());
            produce(6, 1);
            List<ConsumerRecord<String, String>> last = poll(consumer);
            said.put("last", plain(last));
            consumer.acknowledge(last.get(0));
        }
        said.put("lag after close", lag());
        return said;
    }

    private Object close() throws Exception {
        produce(0, 4);
        Map<String, Object> said = map();
        try (KafkaShareConsumer<String, String> consumer = explicitConsumer()) {
            List<ConsumerRecord<String, String>> records = poll(consumer);
            said.put("first", plain(records));
            consumer.acknowledge(records.get(0));
            consumer.acknowledge(records.get(2), AcknowledgeType.REJECT);
        }
        said.put("lag", lag());
        // Records that were delivered by the last poll are not accepted, even with implicit acknowledgement.
        try (KafkaShareConsumer<String, String> consumer = implicitConsumer()) {
            said.put("second", plain(poll(consumer)));
        }
        said.put("lag at the end", lag());
        return said;
    }

    private Object timeOut() throws Exception {
        configure("share.record.lock.duration.ms", "1000");
        produce(0, 2);
        Map<String, Object> said = map();
        try (KafkaShareConsumer<String, String> slow = explicitConsumer();
                KafkaShareConsumer<String, String> other = explicitConsumer()) {
            List<ConsumerRecord<String, String>> records = poll(slow);
            said.put("slow", plain(records));
            said.put("lock", slow.acquisitionLockTimeoutMs().orElse(-1));
            configure("share.record.lock.duration.ms", "60000");
            List<ConsumerRecord<String, String>> taken = poll(other);
            said.put("other", plain(taken));
            records.forEach(slow::acknowledge);
            said.put("late", errors(slow.commitSync()));
            taken.forEach(other::acknowledge);
            said.put("in time", errors(other.commitSync()));
        }
        said.put("lag", lag());
        return said;
    }

    private Object renew() throws Exception {
        configure("share.record.lock.duration.ms", "2000");
        produce(0, 1);
        Map<String, Object> said = map();
        try (KafkaShareConsumer<String, String> slow = explicitConsumer();
                KafkaShareConsumer<String, String> other = explicitConsumer()) {
            ConsumerRecord<String, String> record = poll(slow).get(0);
            long begin = System.currentTimeMillis();
            TreeSet<String> results = new TreeSet<>();
            int seen = 0;
            while (System.currentTimeMillis() < begin + 5000) {
                slow.acknowledge(record, AcknowledgeType.RENEW);
                results.addAll(errors(slow.commitSync()));
                // A renewed record comes again, without a new delivery.
                record = poll(slow).get(0);
                for (int turn = 0; turn < 5; turn++) {
                    seen += other.poll(SOON).count();
                }
            }
            said.put("renewals", results);
            said.put("others", seen);
            said.put("record", plain(List.of(record)));
            slow.acknowledge(record);
            said.put("accepted", errors(slow.commitSync()));
        }
        said.put("lag", lag());
        return said;
    }

    private Object two() throws Exception {
        List<Long> seen = new ArrayList<>();
        Map<String, Long> of = new HashMap<>();
        int[] produced = {0};
        try (KafkaShareConsumer<String, String> one = implicitConsumer("max.poll.records", 10);
                KafkaShareConsumer<String, String> other = implicitConsumer("max.poll.records", 10)) {
            // Until both have some: one of them hears of its assignment later.
            until("all records", () -> {
                if (of.size() < 2 || produced[0] < 50) {
                    produce(produced[0]++, 1);
                }
                for (Map.Entry<String, KafkaShareConsumer<String, String>> each :
                        Map.of("one", one, "other", other).entrySet()) {
                    for (ConsumerRecord<String, String> record : each.getValue().poll(SOON)) {
                        seen.add(record.offset());
                        of.merge(each.getKey(), 1L, Long::sum);
                    }
                }
                return of.size() == 2 && produced[0] >= 50 && new TreeSet<>(seen).size() == produced[0];
            });
            one.commitSync();
            other.commitSync();
        }
        return map("repeated", seen.size() - produced[0], "members with records", of.size(), "lag", lag());
    }

    private Object limit() throws Exception {
        produce(0, 10);
        Map<String, Object> said = map();
        Object[] three = {"share.acquire.mode", "record_limit", "max.poll.records", 3};
        Object[] four = {"share.acquire.mode", "record_limit", "max.poll.records", 4};
        try (KafkaShareConsumer<String, String> one = explicitConsumer(three);
                KafkaShareConsumer<String, String> other = explicitConsumer(four)) {
            List<ConsumerRecord<String, String>> first = poll(one);
            List<ConsumerRecord<String, String>> second = poll(other);
            said.put("one", plain(first));
            said.put("other", plain(second));
            first.forEach(one::acknowledge);
            List<ConsumerRecord<String, String>> rest = poll(one);
            said.put("one again", plain(rest));
            rest.forEach(one::acknowledge);
            one.commitSync();
            second.forEach(record -> other.acknowledge(record, AcknowledgeType.RELEASE));
            other.commitSync();
            said.put("lag", lag());
        }
        return said;
    }

    private Object transactions() throws Exception {
        configure("share.isolation.level", "read_committed");
        try (KafkaProducer<String, String> producer = producer("transactional.id", topic)) {
            producer.initTransactions();
            for (String end : List.of("commit", "abort", "commit")) {
                producer.beginTransaction();
                for (int number = 0; number < 3; number++) {
                    producer.send(new ProducerRecord<>(topic, end + " " + number));
                }
                producer.flush();
                if (end.equals("commit")) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            Map<String, Object> said = map();
            List<String> values = new ArrayList<>();
            try (KafkaShareConsumer<String, String> consumer = implicitConsumer()) {
                until("six records", () -> {
                    consumer.poll(SOON).forEach(record -> values.add(record.value()));
                    return values.size() >= 6;
                });
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "open"));
                producer.flush();
                said.put("while open", consumer.poll(Duration.ofSeconds(1)).count());
                producer.commitTransaction();
                poll(consumer).forEach(record -> values.add(record.value()));
                consumer.commitSync();
            }
            said.put("values", values);
            said.put("lag", lag());
            return said;
        }
    }

    private Object undecodable() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            for (String value : List.of("four", "bad", "five", "bad")) {
                // An Integer has four bytes.
                producer.send(new ProducerRecord<>(topic, value));
            }
            producer.flush();
        }
        List<Long> good = new ArrayList<>();
        List<Long> bad = new ArrayList<>();
        try (KafkaShareConsumer<String, Integer> consumer =
                consumer(IntegerDeserializer.class, "share.acknowledgement.mode", "explicit")) {
            until("four records", () -> {
                try {
                    for (ConsumerRecord<String, Integer> record : consumer.poll(SOON)) {
                        good.add(record.offset());
                        consumer.acknowledge(record);
                    }
                } catch (RecordDeserializationException error) {
                    bad.add(error.offset());
                    TopicPartition where = error.topicPartition();
                    consumer.acknowledge(where.topic(), where.partition(), error.offset(), AcknowledgeType.REJECT);
                }
                return good.size() + bad.size() >= 4;
            });
            consumer.commitSync();
        }
        return map("good", good, "bad", bad);
    }
}
