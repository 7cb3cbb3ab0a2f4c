// Prints the versions of requests that brokers of a release offer, as Kafka's own classes list them:
// `java -cp kafka-clients.jar:slf4j-api.jar Versions.java` prints the rows of krammar/broker/releases.csv without the release.

import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;

public final class Versions {
    public static void main(String[] arguments) {
        for (ApiKeys key : ApiKeys.apisForListener(ApiMessageType.ListenerType.BROKER)) {
            key.toApiVersion(false).ifPresent(each -> {
                int low = key == ApiKeys.PRODUCE ? lowestProduce(each.minVersion()) : each.minVersion();
                System.out.println(each.apiKey() + "," + low + "," + each.maxVersion());
            });
        }
    }

    // From 4.0 on, ApiVersions lists versions of Produce that are refused (KAFKA-18659).
    private static int lowestProduce(int accepted) {
        try {
            return ApiKeys.class.getField("PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION").getShort(null);
        } catch (ReflectiveOperationException absent) {
            return accepted;
        }
    }
}
