import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Modifier;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.jar.JarFile;

/**
 * Reads messages with the classes in Apache Kafka's own jars, and writes them again.
 *
 * <p>Each argument is a release: its name, then its jars, joined by ':'. A message is read by the first
 * release that has its class and supports its version. The input has lines "name version hex"; the
 * output for each is one of
 *
 * <pre>
 * ok RELEASE HEX JSON    what was written again, and the fields of what was read
 * error RELEASE TEXT     reading or writing failed
 * unknown                no release has the message at that version
 * </pre>
 */
public class KafkaOracle {
    private static final List<Release> releases = new ArrayList<>();

    /** The message classes of one release, in a class loader of its own. */
    private static final class Release {
        final String name;
        final ClassLoader loader;
        final Map<String, String> classes = new HashMap<>();
        final Class<?> accessor;
        final Class<?> cache;
        final Class<?> readable;
        final Class<?> writable;

        Release(String argument) throws Exception {
            String[] parts = argument.split(":");
            name = parts[0];
            List<URL> urls = new ArrayList<>();
            for (int i = 1; i < parts.length; i++) {
                urls.add(new File(parts[i]).toURI().toURL());
                try (JarFile jar = new JarFile(parts[i])) {
                    jar.stream().map(entry -> entry.getName()).forEach(this::add);
                }
            }
            loader = new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
            String protocol = "org.apache.kafka.common.protocol.";
            accessor = loader.loadClass(protocol + "ByteBufferAccessor");
            cache = loader.loadClass(protocol + "ObjectSerializationCache");
            readable = loader.loadClass(protocol + "Readable");
            writable = loader.loadClass(protocol + "Writable");
        }

        /** Remember a class that Kafka's generator wrote: those are in a few packages. */
        private void add(String entry) {
            boolean generated = entry.contains("/generated/")
                || entry.contains("/common/message/")
                || entry.contains("/common/metadata/");
            if (generated && entry.endsWith(".class") && !entry.contains("$")) {
                String full = entry.substring(0, entry.length() - ".class".length()).replace('/', '.');
                classes.putIfAbsent(full.substring(full.lastIndexOf('.') + 1), full);
            }
        }

        Object message(String name) throws Exception {
            String found = classes.getOrDefault(name + "Data", classes.get(name));
            return found == null ? null : loader.loadClass(found).getConstructor().newInstance();
        }

        Object accessor(ByteBuffer buffer) throws Exception {
            return accessor.getConstructor(ByteBuffer.class).newInstance(buffer);
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            releases.add(new Release(argument));
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            out.println(answer(parts[0], Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2])));
        }
        out.flush();
    }

    private static String answer(String name, short version, byte[] data) throws Exception {
        for (Release release : releases) {
            Object message = release.message(name);
            if (message != null
                    && version >= limit(message, "lowestSupportedVersion")
                    && version <= limit(message, "highestSupportedVersion")) {
                try {
                    return "ok " + release.name + " " + again(release, message, version, data);
                } catch (InvocationTargetException failure) {
                    String text = String.valueOf(failure.getCause()).replaceAll("\\s+", " ");
                    return "error " + release.name + " " + text;
                }
            }
        }
        return "unknown";
    }

    private static short limit(Object message, String method) throws Exception {
        return (Short) message.getClass().getMethod(method).invoke(message);
    }

    private static String again(Release release, Object message, short version, byte[] data) throws Exception {
        Class<?> type = message.getClass();
        ByteBuffer in = ByteBuffer.wrap(data);
        type.getMethod("read", release.readable, short.class).invoke(message, release.accessor(in), version);
        StringBuilder json = new StringBuilder();
        show(message, json);
        Object cache = release.cache.getConstructor().newInstance();
        int size = (Integer) type.getMethod("size", release.cache, short.class).invoke(message, cache, version);
        ByteBuffer out = ByteBuffer.allocate(size);
        type.getMethod("write", release.writable, release.cache, short.class)
            .invoke(message, release.accessor(out), cache, version);
        // What was not read makes the bytes differ, so it is put behind them.
        return HexFormat.of().formatHex(out.array(), 0, out.position())
            + HexFormat.of().formatHex(data, in.position(), data.length) + " " + json;
    }

    /** Fields by name as JSON: bytes as base64, unknown tagged fields as pairs. */
    private static void show(Object value, StringBuilder out) throws Exception {
        String kind = value == null ? "" : value.getClass().getSimpleName();
        if (value == null || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Double) {
            quote(value.toString(), out);
        } else if (value instanceof Number) {
            out.append(value);
        } else if (value instanceof String) {
            quote((String) value, out);
        } else if (value instanceof byte[]) {
            quote(Base64.getEncoder().encodeToString((byte[]) value), out);
        } else if (value instanceof ByteBuffer) {
            ByteBuffer buffer = ((ByteBuffer) value).duplicate();
            byte[] copy = new byte[buffer.remaining()];
            buffer.get(copy);
            show(copy, out);
        } else if (kind.equals("MemoryRecords")) {
            show(value.getClass().getMethod("buffer").invoke(value), out);
        } else if (kind.equals("Uuid")) {
            long high = (Long) value.getClass().getMethod("getMostSignificantBits").invoke(value);
            long low = (Long) value.getClass().getMethod("getLeastSignificantBits").invoke(value);
            quote(new UUID(high, low).toString(), out);
        } else if (kind.equals("RawTaggedField")) {
            out.append('[').append(value.getClass().getMethod("tag").invoke(value)).append(',');
            show(value.getClass().getMethod("data").invoke(value), out);
            out.append(']');
        } else if (value instanceof Iterable) {
            String comma = "[";
            for (Object element : (Iterable<?>) value) {
                out.append(comma);
                show(element, out);
                comma = ",";
            }
            out.append(comma.equals("[") ? "[]" : "]");
        } else {
            String comma = "{";
            for (Field field : value.getClass().getDeclaredFields()) {
                // The elements of Kafka's linked hash collections hold their neighbours.
                boolean link = field.getName().equals("next") || field.getName().equals("prev");
                if (!link && !Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    out.append(comma).append('"').append(field.getName()).append("\":");
                    show(field.get(value), out);
                    comma = ",";
                }
            }
            out.append(comma.equals("{") ? "{}" : "}");
        }
    }

    private static void quote(String text, StringBuilder out) {
        out.append('"');
        for (char c : text.toCharArray()) {
            boolean plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
            out.append(plain ? String.valueOf(c) : String.format("\\u%04x", (int) c));
        }
        out.append('"');
    }
}
