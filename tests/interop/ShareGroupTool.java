// Runs kafka-share-groups.sh's commands in one process: `java -cp JARS ShareGroupTool.java HOST:PORT` reads one command
// per line, its arguments separated by tabs, and prints what the tool prints as one JSON string.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.consumer.group.ShareGroupCommand;

public final class ShareGroupTool {
    private static final class Exited extends RuntimeException {
        private Exited(int code) {
            super("exit " + code);
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream out = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> {
            throw new Exited(code);
        });
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> command = new ArrayList<>(List.of("--bootstrap-server", arguments[0]));
            command.addAll(List.of(line.split("\t")));
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(both);
            System.setErr(both);
            try {
                ShareGroupCommand.main(command.toArray(new String[0]));
            } catch (Exited exited) {
                both.println(exited.getMessage());
            }
            out.println(json.writeValueAsString(said.toString(StandardCharsets.UTF_8)));
            out.flush();
        }
    }
}
