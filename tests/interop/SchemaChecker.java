import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

import org.apache.kafka.message.checker.MetadataSchemaCheckerTool;

/**
 * Asks Kafka's checker whether schemas can follow others.
 *
 * The argument is a folder. Each folder in it contains pairs of schemas, such as request-old.json and
 * request-new.json. Each line of the output is the name of a folder, a tab, and what the checker says against a
 * pair, or nothing if it accepts all.
 */
public final class SchemaChecker {
    private static final PrintStream NOWHERE = new PrintStream(OutputStream.nullOutputStream());

    public static void main(String[] arguments) throws Exception {
        try (Stream<Path> folders = Files.list(Path.of(arguments[0]))) {
            for (Path folder : folders.sorted().toList()) {
                System.out.println(folder.getFileName() + "\t" + check(folder));
            }
        }
    }

    private static String check(Path folder) throws Exception {
        List<Path> pairs;
        try (Stream<Path> files = Files.list(folder)) {
            pairs = files.filter(path -> path.toString().endsWith("-old.json")).sorted().toList();
        }
        for (Path old : pairs) {
            Path next = old.resolveSibling(old.getFileName().toString().replace("-old.", "-new."));
            for (Path each : List.of(old, next)) {
                run("parse", "--path", each.toString());
            }
            try {
                run("verify-evolution", "--parent_path", old.toString(), "--path", next.toString());
            } catch (RuntimeException refused) {
                return refused.getMessage().replaceAll("\\s+", " ");
            }
        }
        return "";
    }

    private static void run(String... arguments) throws Exception {
        MetadataSchemaCheckerTool.run(arguments, NOWHERE);
    }
}
