// Aborts the transaction of producer 5, epoch 3, in partition 0 with Kafka's admin client, once with a wrong epoch:
// `java -cp JARS Abort SERVERS TOPIC`.

import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartition;

public final class Abort {
    public static void main(String[] arguments) throws Exception {
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            for (short epoch : new short[] {2, 3, 3}) {
                try {
                    admin.abortTransaction(new AbortTransactionSpec(partition, 5, epoch, 0)).all().get();
                    System.out.println("aborted");
                } catch (ExecutionException error) {
                    System.out.println(error.getCause().getClass().getSimpleName());
                }
            }
        }
    }
}
