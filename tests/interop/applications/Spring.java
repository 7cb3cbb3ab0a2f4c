// Copies records with Spring Kafka, each in a transaction: `java -cp JARS Spring.java SERVERS COUNT` creates the topics, sends
// COUNT records, and runs a listener until all of them are copied or are dead letters. It prints how often the listener has failed.

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

public final class Spring {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> servers = Map.of("bootstrap.servers", arguments[0]);
        int count = Integer.parseInt(arguments[1]);
        new KafkaAdmin(servers).createOrModifyTopics(
                TopicBuilder.name("in").partitions(2).build(),
                TopicBuilder.name("out").partitions(2).build(),
                TopicBuilder.name("in-dlt").partitions(2).build());

        var producers = new DefaultKafkaProducerFactory<>(servers, new StringSerializer(), new StringSerializer());
        producers.setTransactionIdPrefix("spring-");
        var template = new KafkaTemplate<>(producers);
        template.executeInTransaction(operations -> {
            for (int number = 0; number < count; number++) {
                operations.send("in", "key " + number, value(number));
            }
            return null;
        });

        CountDownLatch left = new CountDownLatch(count);
        AtomicInteger failures = new AtomicInteger();
        Set<String> fragile = ConcurrentHashMap.newKeySet();
        var properties = new ContainerProperties("in");
        properties.setGroupId("spring");
        properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        properties.setMessageListener((MessageListener<String, String>) record -> {
            template.send("out", record.key(), record.value());
            boolean breaks = record.value().startsWith("fragile") && fragile.add(record.value());
            if (breaks || record.value().startsWith("poison")) {
                failures.incrementAndGet();
                throw new IllegalStateException(record.value());
            }
            left.countDown();
        });
        var letters = new DeadLetterPublishingRecoverer(template);
        var consumers = new DefaultKafkaConsumerFactory<>(
                Map.<String, Object>of(
                        "bootstrap.servers", arguments[0],
                        "auto.offset.reset", "earliest",
                        "isolation.level", "read_committed",
                        "max.poll.records", "7"),
                new StringDeserializer(), new StringDeserializer());
        var container = new ConcurrentMessageListenerContainer<>(consumers, properties);
        container.setConcurrency(2);
        container.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(
                (record, error) -> {
                    letters.accept(record, null, error);
                    left.countDown();
                },
                new FixedBackOff(20, 2), template, true));
        container.start();
        boolean finished = left.await(60, TimeUnit.SECONDS);
        container.stop();
        producers.destroy();
        System.out.println(finished ? failures.get() : "only " + (count - left.getCount()) + " records are done");
        System.exit(0);
    }

    private static String value(int number) {
        return (number % 10 == 3 ? "fragile " : number % 10 == 7 ? "poison " : "plain ") + number;
    }
}
