// What Apache Kafka's own clients do with a broker: `java -cp JARS Clients.java SCENARIO HOST:PORT TOPIC`
// prints one JSON value. The topic is empty and has two partitions. What scenarios are there says main().

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Clients {
    private static final Duration SOON = Duration.ofMillis(100);
    private static final long WAIT_MS = 30_000;
    private static final long HOUR = 3_600_000;

    private final String server;
    private final String topic;
    private final TopicPartition first;
    private final TopicPartition second;

    private Clients(String server, String topic) {
        this.server = server;
        this.topic = topic;
        this.first = new TopicPartition(topic, 0);
        this.second = new TopicPartition(topic, 1);
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[1], arguments[2]);
        Map<String, Callable<Object>> scenarios = new HashMap<>();
        scenarios.put("produce", clients::produce);
        scenarios.put("codecs", clients::codecs);
        scenarios.put("positions", clients::positions);
        scenarios.put("transactions", clients::transactions);
        scenarios.put("offsets", clients::offsetsInTransactions);
        scenarios.put("fencing", clients::fencing);
        scenarios.put("eager", () -> clients.classicGroup(RangeAssignor.class));
        scenarios.put("cooperative", () -> clients.classicGroup(CooperativeStickyAssignor.class));
        scenarios.put("consumer", () -> clients.group("group.protocol", "consumer"));
        scenarios.put("consumer range", () -> clients.group(
                "group.protocol", "consumer", "group.remote.assignor", "range"));
        scenarios.put("pattern", clients::pattern);
        scenarios.put("static", clients::staticMembers);
        scenarios.put("topics", clients::topics);
        scenarios.put("groups", clients::groups);
        scenarios.put("producers", clients::producers);
        scenarios.put("cluster", clients::cluster);
        Object said = scenarios.get(arguments[0]).call();
        System.out.println(new ObjectMapper().writeValueAsString(said));
    }

    // --- clients

    private Map<String, Object> settings(Object... pairs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", server);
        settings.put("default.api.timeout.ms", 30_000);
        for (int at = 0; at < pairs.length; at += 2) {
            settings.put((String) pairs[at], pairs[at + 1]);
        }
        return settings;
    }

    /** All settings that are not named are Kafka's defaults: idempotent, acks=all. */
    private KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
    }

    private KafkaProducer<String, String> transactional(String name) {
        KafkaProducer<String, String> producer = producer("transactional.id", name, "linger.ms", 0);
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<String, String> consumer(String group, Object... pairs) {
        Map<String, Object> settings = settings(pairs);
        settings.put("group.id", group);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** What a consumer reads of both partitions, from the beginning to their ends. */
    private List<ConsumerRecord<String, String>> read(String isolation) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (KafkaConsumer<String, String> reader = consumer("unused", "isolation.level", isolation)) {
            List<TopicPartition> both = List.of(first, second);
            reader.assign(both);
            reader.seekToBeginning(both);
            Map<TopicPartition, Long> ends = reader.endOffsets(both);
            until("the ends of both partitions", () -> {
                reader.poll(SOON).forEach(found::add);
                return both.stream().allMatch(one -> reader.position(one) >= ends.get(one));
            });
        }
        return found;
    }

    private List<String> values(String isolation) {
        return read(isolation).stream().map(ConsumerRecord::value).sorted().toList();
    }

    private static void until(String what, BooleanSupplier reached) {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!reached.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("never seen: " + what);
            }
        }
    }

    /** The simple name of what an action throws, or "nothing". */
    private static String thrown(Callable<?> action) {
        try {
            action.call();
            return "nothing";
        } catch (ExecutionException wrapped) {
            return wrapped.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    private static String thrown(Runnable action) {
        return thrown(() -> {
            action.run();
            return null;
        });
    }

    /** A map with the entries that are given, in their order. */
    private static Map<String, Object> map(Object... pairs) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            made.put((String) pairs[at], pairs[at + 1]);
        }
        return made;
    }

    private static Map<String, Object> plain(ConsumerRecord<String, String> record) {
        Map<String, String> headers = new TreeMap<>();
        for (Header header : record.headers()) {
            byte[] value = header.value();
            headers.put(header.key(), value == null ? null : new String(value, StandardCharsets.UTF_8));
        }
        return map(
                "partition", record.partition(),
                "offset", record.offset(),
                "timestamp", record.timestamp(),
                "key", record.key(),
                "value", record.value(),
                "headers", headers,
                "epoch", record.leaderEpoch().orElse(-1));
    }

    // --- producers and consumers

    private Object produce() throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer()) {
            for (int index = 0; index < 1000; index++) {
                List<Header> headers = new ArrayList<>();
                if (index % 3 == 0) {
                    headers.add(new RecordHeader("index", String.valueOf(index).getBytes(StandardCharsets.UTF_8)));
                    headers.add(new RecordHeader("nothing", (byte[]) null));
                }
                String key = index % 5 == 0 ? null : "key " + index;
                String value = index % 7 == 0 ? null : "välue " + index;
                sent.add(producer.send(new ProducerRecord<>(
                        topic, index % 2, 1_700_000_000_000L + index, key, value, headers)));
            }
            producer.flush();
        }
        List<List<Long>> acknowledged = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata known = future.get();
            acknowledged.add(List.of((long) known.partition(), known.offset(), known.timestamp()));
        }
        String tooLarge;
        String unknown;
        try (KafkaProducer<String, String> producer =
                producer("max.request.size", 5_000_000, "max.block.ms", 2000)) {
            tooLarge = thrown(() -> producer.send(new ProducerRecord<>(topic, "x".repeat(2_000_000))).get());
            unknown = thrown(() -> producer.send(new ProducerRecord<>(topic, 9, null, "x")).get());
        }
        return map(
                "acknowledged", acknowledged,
                "read", read("read_uncommitted").stream().map(Clients::plain).toList(),
                "too large", tooLarge,
                "unknown partition", unknown);
    }

    private Object codecs() {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<String, String> producer =
                    producer("compression.type", codec, "linger.ms", 50)) {
                for (int index = 0; index < 200; index++) {
                    producer.send(new ProducerRecord<>(topic, index % 2, null, (codec + " " + index + " ").repeat(9)));
                }
            }
        }
        return map("values", values("read_uncommitted"));
    }

    private Object positions() {
        // One record an hour, the last of them an hour ago.
        long now = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = producer()) {
            for (int index = 0; index < 100; index++) {
                producer.send(new ProducerRecord<>(topic, 0, now - (100 - index) * HOUR, null, "value " + index));
            }
        }
        String group = topic + "-positions";
        List<TopicPartition> both = List.of(first, second);
        Map<String, Object> said = map();
        try (KafkaConsumer<String, String> reader = consumer(group, "max.poll.records", 10)) {
            reader.assign(both);
            said.put("times", reader.offsetsForTimes(Map.of(first, now - 58 * HOUR - 1)).get(first).offset());
            said.put("beyond", reader.offsetsForTimes(Map.of(first, now)).get(first) == null);
            said.put("ends", List.of(reader.endOffsets(both).get(first), reader.endOffsets(both).get(second)));
            reader.seek(first, 42);
            reader.pause(Set.of(second));
            List<Long> seen = new ArrayList<>();
            until("ten records", () -> {
                reader.poll(SOON).forEach(record -> seen.add(record.offset()));
                return seen.size() >= 10;
            });
            said.put("seen", seen);
            said.put("position", reader.position(first));
            said.put("lag", reader.currentLag(first).getAsLong());
            reader.commitSync(Map.of(first, new OffsetAndMetadata(reader.position(first), Optional.of(0), "noté")));
            OffsetAndMetadata stored = reader.committed(Set.of(first)).get(first);
            said.put("committed", List.of(stored.offset(), stored.metadata(), stored.leaderEpoch().orElse(-1)));
            said.put("not committed", reader.committed(Set.of(second)).get(second) == null);
            reader.seek(first, 5000);
            // The new position, and records of it, come at once or one after the other.
            List<Long> again = new ArrayList<>();
            until("a position that exists", () -> {
                reader.poll(SOON).forEach(record -> again.add(record.offset()));
                return !again.isEmpty();
            });
            said.put("reset to", again.get(0));
            said.put("partitions", reader.partitionsFor(topic).size());
        }
        try (KafkaConsumer<String, String> reader = consumer(group)) {
            reader.assign(both);
            said.put("goes on at", reader.position(first));
        }
        try (KafkaConsumer<String, String> reader = consumer("unused", "auto.offset.reset", "by_duration:PT10H30M")) {
            reader.assign(List.of(first));
            said.put("of the last ten hours", reader.position(first));
        }
        try (KafkaConsumer<String, String> reader = consumer("unused", "auto.offset.reset", "none")) {
            reader.assign(both);
            said.put("without an offset", thrown(() -> until("an error", () -> {
                reader.poll(SOON);
                return false;
            })));
        }
        return said;
    }

    // --- transactions

    private Object transactions() throws Exception {
        Map<String, Object> said = map();
        try (KafkaProducer<String, String> producer = transactional(topic + "-tx");
                KafkaProducer<String, String> plain = producer();
                Admin admin = Admin.create(settings())) {
            for (int number = 0; number < 6; number++) {
                String end = number % 2 == 0 ? "commit" : "abort";
                producer.beginTransaction();
                for (int index = 0; index < 10; index++) {
                    producer.send(new ProducerRecord<>(topic, index % 2, null, end + " " + number + " " + index));
                }
                plain.send(new ProducerRecord<>(topic, 0, null, "plain " + number)).get();
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
            said.put("committed", values("read_committed"));
            said.put("all", values("read_uncommitted").size());

            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "open")).get();
            plain.send(new ProducerRecord<>(topic, 0, null, "behind it")).get();
            said.put("while open", values("read_committed").size());
            said.put("stable end", end(admin, IsolationLevel.READ_COMMITTED));
            said.put("end", end(admin, IsolationLevel.READ_UNCOMMITTED));
            producer.commitTransaction();
            said.put("after", values("read_committed").size());

            // One that holds nothing has nothing to end.
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            said.put("state", admin.describeTransactions(List.of(topic + "-tx"))
                    .description(topic + "-tx").get().state().toString());
        }
        return said;
    }

    private long end(Admin admin, IsolationLevel isolation) throws Exception {
        return admin.listOffsets(Map.of(first, OffsetSpec.latest()), new ListOffsetsOptions(isolation))
                .partitionResult(first).get().offset();
    }

    /** Reads partition 0, writes partition 1, with its place in the transaction. */
    @SuppressWarnings("removal")
    private Object offsetsInTransactions() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int index = 0; index < 100; index++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "value " + index));
            }
        }
        String group = topic + "-copier";
        Map<String, Object> said = map();
        List<Long> stored = new ArrayList<>();
        int turn = 0;
        int copied = 0;
        try (KafkaProducer<String, String> producer = transactional(topic + "-copier");
                KafkaConsumer<String, String> reader =
                        consumer(group, "isolation.level", "read_committed", "max.poll.records", 10)) {
            reader.subscribe(List.of(topic));
            long deadline = System.currentTimeMillis() + WAIT_MS;
            while (copied < 100 && System.currentTimeMillis() < deadline) {
                List<ConsumerRecord<String, String>> batch = reader.poll(SOON).records(first);
                if (batch.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : batch) {
                    producer.send(new ProducerRecord<>(topic, 1, null, "copy of " + record.value()));
                }
                OffsetAndMetadata next = new OffsetAndMetadata(batch.get(batch.size() - 1).offset() + 1);
                producer.sendOffsetsToTransaction(Map.of(first, next), reader.groupMetadata());
                if (turn++ % 3 == 1) {
                    producer.abortTransaction();
                    reader.seek(first, batch.get(0).offset());
                } else {
                    producer.commitTransaction();
                    copied += batch.size();
                }
                OffsetAndMetadata now = reader.committed(Set.of(first)).get(first);
                stored.add(now == null ? -1 : now.offset());
            }
            said.put("stored", stored);

            // Who is no member of that generation does not move the group's offsets.
            ConsumerGroupMetadata late =
                    new ConsumerGroupMetadata(group, 999, reader.groupMetadata().memberId(), Optional.empty());
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 1, null, "copy too late"));
            said.put("late member", thrown(() -> {
                producer.sendOffsetsToTransaction(Map.of(first, new OffsetAndMetadata(1)), late);
                producer.commitTransaction();
            }));
            producer.abortTransaction();
            said.put("stays", reader.committed(Set.of(first)).get(first).offset());
        }
        said.put("copies", read("read_committed").stream()
                .filter(record -> record.partition() == 1).map(ConsumerRecord::value).sorted().toList());
        return said;
    }

    private Object fencing() throws Exception {
        Map<String, Object> said = map();
        String name = topic + "-tx";
        try (KafkaProducer<String, String> older = transactional(name)) {
            older.beginTransaction();
            older.send(new ProducerRecord<>(topic, 0, null, "of the older")).get();
            try (KafkaProducer<String, String> newer = transactional(name)) {
                said.put("send", thrown(() -> older.send(new ProducerRecord<>(topic, 0, null, "too late")).get()));
                said.put("commit", thrown(older::commitTransaction));
                newer.beginTransaction();
                newer.send(new ProducerRecord<>(topic, 0, null, "of the newer")).get();
                newer.commitTransaction();
            }
        }
        try (KafkaProducer<String, String> older = transactional(name);
                Admin admin = Admin.create(settings())) {
            older.beginTransaction();
            older.send(new ProducerRecord<>(topic, 1, null, "of whom the admin fences")).get();
            admin.fenceProducers(List.of(name)).all().get();
            said.put("fenced by admin", thrown(older::commitTransaction));
        }
        said.put("committed", values("read_committed"));
        return said;
    }

    // --- groups

    /** A member of a group in a thread of its own. */
    private final class Member extends Thread {
        final KafkaConsumer<String, String> consumer;
        final Set<Integer> owned = ConcurrentHashMap.newKeySet();
        final ConcurrentLinkedQueue<String> seen;
        final ConcurrentLinkedQueue<String> failures = new ConcurrentLinkedQueue<>();
        private final AtomicBoolean over = new AtomicBoolean();

        Member(String group, ConcurrentLinkedQueue<String> seen, Object... pairs) {
            this.seen = seen;
            consumer = consumer(group, pairs);
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    consumer.commitSync();
                    partitions.forEach(one -> owned.remove(one.partition()));
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    partitions.forEach(one -> owned.remove(one.partition()));
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    partitions.forEach(one -> owned.add(one.partition()));
                }
            });
            start();
        }

        @Override
        public void run() {
            try {
                while (!over.get()) {
                    consumer.poll(Duration.ofSeconds(1)).forEach(record -> seen.add(record.value()));
                    consumer.commitAsync();
                }
            } catch (WakeupException asked) {
                // It is to end.
            } catch (Exception error) {
                failures.add(error.toString());
            } finally {
                try {
                    consumer.close();
                } catch (KafkaException error) {
                    // A member that was put out of its group cannot leave it.
                    failures.add(error.toString());
                }
            }
        }

        void end() {
            over.set(true);
            consumer.wakeup();
            try {
                join(WAIT_MS);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private void fill(String name) {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int index = 0; index < 50; index++) {
                producer.send(new ProducerRecord<>(topic, index % 2, null, name + " " + index));
            }
        }
    }

    private Object classicGroup(Class<?> assignor) throws Exception {
        return group(
                "partition.assignment.strategy", assignor.getName(),
                "heartbeat.interval.ms", 200,
                "session.timeout.ms", 6000);
    }

    /** A consumer subscribes with a pattern of RE2, which the broker resolves. */
    private Object pattern() throws Exception {
        Map<String, Object> said = map();
        fill("pattern");
        Set<String> seen = new TreeSet<>();
        try (KafkaConsumer<String, String> reader = consumer(topic + "-pattern", "group.protocol", "consumer")) {
            reader.subscribe(new SubscriptionPattern(topic + "|nothing-\\d+"));
            until("all records", () -> {
                reader.poll(SOON).forEach(record -> seen.add(record.value()));
                return seen.size() == 50;
            });
        }
        try (KafkaConsumer<String, String> reader = consumer(topic + "-broken", "group.protocol", "consumer")) {
            reader.subscribe(new SubscriptionPattern("("));
            ConcurrentLinkedQueue<String> failures = new ConcurrentLinkedQueue<>();
            until("the refusal", () -> {
                try {
                    reader.poll(SOON);
                } catch (KafkaException error) {
                    failures.add(error.getClass().getSimpleName());
                }
                return !failures.isEmpty();
            });
            said.put("refused", failures.peek());
        }
        return said;
    }

    private Object group(Object... pairs) throws Exception {
        String group = topic + "-group";
        Map<String, Object> said = map();
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        fill("for one");
        Member one = new Member(group, seen, pairs);
        until("both partitions with one member", () -> one.owned.equals(Set.of(0, 1)) && seen.size() == 50);
        Member two = new Member(group, seen, pairs);
        until("a partition each", () -> one.owned.size() == 1 && two.owned.size() == 1);
        fill("for two");
        until("what two members read", () -> seen.size() == 100);
        said.put("owned", new TreeSet<>(List.of(List.copyOf(one.owned).get(0), List.copyOf(two.owned).get(0))));
        try (Admin admin = Admin.create(settings())) {
            var told = admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
            said.put("state", told.groupState().toString());
            said.put("type", told.type().toString());
            said.put("assignor", told.partitionAssignor());
            said.put("members", told.members().size());
            two.end();
            until("both partitions again", () -> one.owned.equals(Set.of(0, 1)));
            fill("for one again");
            until("what the one reads", () -> seen.size() == 150);
            one.end();
            said.put("distinct", new TreeSet<>(seen).size());
            Map<String, Long> stored = new TreeMap<>();
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                    .forEach((where, offset) -> stored.put(String.valueOf(where.partition()), offset.offset()));
            said.put("stored", stored);
            said.put("after", admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get()
                    .groupState().toString());
        }
        List<String> failures = new ArrayList<>(one.failures);
        failures.addAll(two.failures);
        said.put("failures", failures);
        return said;
    }

    private Object staticMembers() throws Exception {
        String group = topic + "-static";
        Map<String, Object> said = map();
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        fill("static");
        Member one = new Member(group, seen, "group.instance.id", "one");
        until("all records", () -> seen.size() == 50 && one.owned.size() == 2);
        Member usurper = new Member(group, seen, "group.instance.id", "one");
        until("the first is fenced", () -> !one.failures.isEmpty());
        said.put("first", one.failures.peek().replaceAll(".*\\.(\\w+):.*", "$1"));
        until("the second owns both", () -> usurper.owned.size() == 2);
        usurper.end();
        try (Admin admin = Admin.create(settings())) {
            var told = admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
            said.put("stays", told.members().stream().map(member -> member.groupInstanceId().orElse("")).toList());
            admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get();
            said.put("removed", admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get()
                    .groupState().toString());
        }
        return said;
    }

    // --- admin

    private Object topics() throws Exception {
        Map<String, Object> said = map();
        String made = topic + "-made";
        try (Admin admin = Admin.create(settings());
                KafkaProducer<String, String> producer = producer()) {
            var created = admin.createTopics(List.of(new NewTopic(made, 3, (short) 1)
                    .configs(Map.of("retention.ms", "-1", "cleanup.policy", "compact"))));
            created.all().get();
            said.put("created", List.of(created.numPartitions(made).get(), created.replicationFactor(made).get()));
            said.put("created with", created.config(made).get().get("retention.ms").value());
            said.put("again", refused(admin, new NewTopic(made, 1, (short) 1)));
            said.put("replicas", refused(admin, new NewTopic("r", 1, (short) 3)));
            said.put("name", refused(admin, new NewTopic("a b", 1, (short) 1)));
            said.put("config", refused(admin, new NewTopic("c", 1, (short) 1).configs(Map.of("retention.ms", "soon"))));
            var told = admin.describeTopics(List.of(made)).allTopicNames().get().get(made);
            said.put("described", List.of(told.partitions().size(), told.isInternal(),
                    told.partitions().get(2).leader().id(), told.partitions().get(2).isr().size()));
            said.put("same id", admin.listTopics().namesToListings().get().get(made).topicId().equals(told.topicId()));
            admin.createPartitions(Map.of(made, NewPartitions.increaseTo(5))).all().get();
            said.put("fewer", thrown(() ->
                    admin.createPartitions(Map.of(made, NewPartitions.increaseTo(2))).all().get()));
            until("five partitions", () -> partitions(admin, made) == 5);

            TopicPartition where = new TopicPartition(made, 1);
            said.put("compacted", thrown(() ->
                    admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(0))).all().get()));
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, made);
            List<AlterConfigOp> changes = List.of(
                    new AlterConfigOp(new ConfigEntry("max.message.bytes", "2000"), AlterConfigOp.OpType.SET),
                    new AlterConfigOp(new ConfigEntry("cleanup.policy", "delete"), AlterConfigOp.OpType.APPEND),
                    new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE));
            admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
            until("the change", () -> config(admin, resource, "max.message.bytes").value().equals("2000"));
            Map<String, String> configs = new TreeMap<>();
            for (String name : List.of("cleanup.policy", "max.message.bytes", "retention.ms")) {
                ConfigEntry entry = config(admin, resource, name);
                configs.put(name, entry.value() + " " + entry.source() + " " + entry.type());
            }
            said.put("configs", configs);

            for (int index = 0; index < 20; index++) {
                long time = 1_700_000_000_000L + 1000 * (index == 13 ? 99 : index);
                producer.send(new ProducerRecord<>(made, 1, time, "key", "value " + index)).get();
            }
            said.put("over its limit", thrown(() ->
                    producer.send(new ProducerRecord<>(made, 1, "key", "x".repeat(3000))).get()));
            Map<String, Object> offsets = new TreeMap<>();
            Map<String, OffsetSpec> specs = Map.of(
                    "earliest", OffsetSpec.earliest(),
                    "latest", OffsetSpec.latest(),
                    "max timestamp", OffsetSpec.maxTimestamp(),
                    "at a time", OffsetSpec.forTimestamp(1_700_000_005_500L),
                    "earliest local", OffsetSpec.earliestLocal());
            for (var spec : specs.entrySet()) {
                var found = admin.listOffsets(Map.of(where, spec.getValue())).partitionResult(where).get();
                offsets.put(spec.getKey(), List.of(found.offset(), found.timestamp()));
            }
            said.put("offsets", offsets);
            var deleted = admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(7)));
            said.put("low", deleted.lowWatermarks().get(where).get().lowWatermark());
            said.put("first", admin.listOffsets(Map.of(where, OffsetSpec.earliest()))
                    .partitionResult(where).get().offset());
            said.put("too far", thrown(() ->
                    admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(99))).all().get()));
            var sizes = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().iterator().next();
            said.put("has a size", sizes.replicaInfos().get(where).size() > 0);
            admin.deleteTopics(List.of(made)).all().get();
            until("the end of the topic", () -> partitions(admin, made) == 0);
            said.put("gone", thrown(() -> admin.deleteTopics(List.of(made)).all().get()));
        }
        return said;
    }

    private static String refused(Admin admin, NewTopic made) {
        return thrown(() -> admin.createTopics(List.of(made)).all().get());
    }

    private static int partitions(Admin admin, String name) {
        try {
            return admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size();
        } catch (ExecutionException | InterruptedException unknown) {
            return 0;
        }
    }

    private static ConfigEntry config(Admin admin, ConfigResource resource, String name) {
        try {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private Object groups() throws Exception {
        Map<String, Object> said = map();
        String group = topic + "-offsets";
        fill("groups");
        try (Admin admin = Admin.create(settings())) {
            admin.alterConsumerGroupOffsets(group, Map.of(
                    first, new OffsetAndMetadata(3, "by the admin"), second, new OffsetAndMetadata(4))).all().get();
            Map<String, String> stored = new TreeMap<>();
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach((where, offset) ->
                    stored.put(String.valueOf(where.partition()), offset.offset() + " " + offset.metadata()));
            said.put("stored", stored);
            var listed = admin.listGroups().all().get().stream()
                    .filter(one -> one.groupId().equals(group)).findFirst().orElseThrow();
            said.put("listed", List.of(listed.type().orElseThrow().toString(),
                    listed.groupState().orElseThrow().toString(), listed.isSimpleConsumerGroup()));
            said.put("coordinator", admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get()
                    .coordinator().id());
            admin.deleteConsumerGroupOffsets(group, Set.of(second)).all().get();
            said.put("left", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().size());
            ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
            Member member = new Member(group, seen, "client.id", "the member");
            until("what is behind the offsets", () -> seen.size() == 22 + 25);
            var told = admin.describeClassicGroups(List.of(group)).all().get().get(group);
            said.put("described", List.of(told.state().toString(), told.protocol(), told.protocolData(),
                    told.members().iterator().next().clientId()));
            said.put("delete while in use", thrown(() -> admin.deleteConsumerGroups(List.of(group)).all().get()));
            said.put("offsets while in use", thrown(() ->
                    admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get()));
            member.end();
            said.put("failures", List.copyOf(member.failures));
            admin.deleteConsumerGroups(List.of(group)).all().get();
            said.put("gone", thrown(() -> admin.deleteConsumerGroups(List.of(group)).all().get()));
            said.put("described when gone", thrown(() ->
                    admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get()));
        }
        return said;
    }

    private Object producers() throws Exception {
        Map<String, Object> said = map();
        String name = topic + "-tx";
        try (KafkaProducer<String, String> producer = transactional(name);
                Admin admin = Admin.create(settings())) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "one")).get();
            producer.send(new ProducerRecord<>(topic, 0, null, "two")).get();
            var state = admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers().get(0);
            said.put("producer", List.of(state.lastSequence(), state.currentTransactionStartOffset().getAsLong()));
            var told = admin.describeTransactions(List.of(name)).description(name).get();
            said.put("transaction", List.of(told.state().toString(), told.coordinatorId(),
                    told.transactionTimeoutMs(), told.topicPartitions().toString(),
                    told.producerId() == state.producerId(), told.producerEpoch() == state.producerEpoch()));
            var listed = admin.listTransactions().all().get().stream()
                    .filter(one -> one.transactionalId().equals(name)).findFirst().orElseThrow();
            said.put("listed", listed.state().toString());
            said.put("unknown", thrown(() -> admin.describeTransactions(List.of("nobody")).all().get()));
            // What an operator does about a transaction that nobody ends.
            admin.forceTerminateTransaction(name).result().get();
            until("the end of it", () -> ended(admin));
            said.put("after it", thrown(producer::commitTransaction));
        }
        said.put("committed", values("read_committed"));
        return said;
    }

    private boolean ended(Admin admin) {
        try {
            return admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers().stream()
                    .allMatch(one -> one.currentTransactionStartOffset().isEmpty());
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private Object cluster() throws Exception {
        Map<String, Object> said = map();
        try (Admin admin = Admin.create(settings())) {
            var told = admin.describeCluster();
            said.put("nodes", told.nodes().get().stream()
                    .map(node -> node.id() + " " + node.host() + ":" + node.port()).toList());
            said.put("controller", told.controller().get().id());
            said.put("id", told.clusterId().get());
            var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
            said.put("transaction.version", features.get("transaction.version").maxVersionLevel());
            said.put("users", admin.describeUserScramCredentials().all().get().size());
            said.put("quotas", admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
            ConfigEntry node = config(admin, broker, "node.id");
            said.put("node.id", List.of(node.value(), node.isReadOnly(), node.source().toString()));
        }
        return said;
    }
}
