// Counts words with Kafka Streams and exactly_once_v2: `java -cp JARS Words.java SERVERS STATE WORD COUNT [PROTOCOL]` runs
// until the store of counts, asked by an interactive query, has COUNT for WORD. Then it prints the count, and closes.

import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

public final class Words {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "application.id", "words", "bootstrap.servers", arguments[0], "state.dir", arguments[1],
                "processing.guarantee", "exactly_once_v2", "commit.interval.ms", "100",
                "default.key.serde", Serdes.StringSerde.class.getName(),
                "default.value.serde", Serdes.StringSerde.class.getName(),
                "auto.offset.reset", "earliest"));
        if (arguments.length > 4) {
            settings.put("group.protocol", arguments[4]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("words").groupByKey()
                .count(Materialized.as(Stores.inMemoryKeyValueStore("store")))
                .toStream().to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            long wanted = Long.parseLong(arguments[3]);
            while (count(streams, arguments[2]) != wanted) {
                Thread.sleep(20);
            }
            System.out.println(count(streams, arguments[2]));
        }
    }

    private static long count(KafkaStreams streams, String word) {
        try {
            var type = QueryableStoreTypes.<String, Long>keyValueStore();
            Long found = streams.store(StoreQueryParameters.fromNameAndType("store", type)).get(word);
            return found == null ? 0 : found;
        } catch (InvalidStateStoreException starting) {
            return -1;
        }
    }
}
