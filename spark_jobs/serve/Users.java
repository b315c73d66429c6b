package headrace.serve;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import javax.security.sasl.AuthenticationException;
import org.apache.hive.service.auth.PasswdAuthenticationProvider;

/**
 * Who may ask: those of a directory, by their passwords there; or those of a file of lines `name:digest` or `name:digest:date`, the
 * digest being SHA-256 of the user's token in hexadecimal digits, the date the last day (UTC) on which it is valid. The file is
 * read again when it has changed; while it cannot be read, nobody may ask.
 */
public final class Users {
    /** The name of everybody where no users are known, which is on a loopback address alone. */
    static final String EVERYBODY = "everybody";
    private static volatile Users current = new Users("");

    private final Directory directory;
    private final Path file;
    private Map<String, User> byName = Map.of();
    private Object read;

    private record User(byte[] digest, Instant until) {
        boolean isValid() {
            return until == null || Instant.now().isBefore(until);
        }
    }

    /** `given` is a file, or the address of a directory; empty for everybody. */
    public Users(String given) {
        directory = given.contains("://") ? new Directory(given) : null;
        file = given.isEmpty() || directory != null ? null : Path.of(given);
        current = this;
    }

    /**
     * Return the user whose token a header brings, of one in a directory `name:password`; null for none. Throws Refusal where the
     * directory does not answer.
     */
    public String ofBearer(String header) {
        if (isEverybody()) {
            return EVERYBODY;
        }
        if (header == null || !header.regionMatches(true, 0, "Bearer ", 0, 7)) {
            return null;
        }
        if (directory == null) {
            return ofToken(header.substring(7).trim());
        }
        String[] parts = header.substring(7).split(":", 2);
        return parts.length == 2 && directory.isUser(parts[0], parts[1]) ? parts[0] : null;
    }

    /** Whether a user has this token or password; throws Refusal where the directory does not answer. */
    public boolean isUser(String name, String token) {
        return directory == null ? isOfFile(name, token) : directory.isUser(name, token);
    }

    /** Whether a user who was let in before may still ask. */
    public boolean isStill(String name) {
        return isEverybody() || (directory == null ? isInFile(name) : directory.isStill(name));
    }

    private boolean isEverybody() {
        return file == null && directory == null;
    }

    private synchronized String ofToken(String token) {
        byte[] digest = digest(token);
        String name = null;
        for (Map.Entry<String, User> each : known().entrySet()) {
            // All are compared, whichever it is.
            if (MessageDigest.isEqual(each.getValue().digest(), digest) && each.getValue().isValid()) {
                name = each.getKey();
            }
        }
        return name;
    }

    private synchronized boolean isOfFile(String name, String token) {
        User user = known().get(name);
        return user != null && MessageDigest.isEqual(user.digest(), digest(token)) && user.isValid();
    }

    private synchronized boolean isInFile(String name) {
        User user = known().get(name);
        return user != null && user.isValid();
    }

    private Map<String, User> known() {
        try {
            Object now = Files.getLastModifiedTime(file) + " " + Files.size(file) + " " + Files.readAttributes(file, "unix:ino");
            if (!now.equals(read)) {
                byName = parse(Files.readString(file));
                read = now;
            }
        } catch (IOException | RuntimeException unreadable) {
            byName = Map.of();
            read = null;
        }
        return byName;
    }

    private static Map<String, User> parse(String text) {
        Map<String, User> users = new HashMap<>();
        for (String line : text.split("\n")) {
            if (line.isBlank() || line.startsWith("#")) {
                continue;
            }
            String[] parts = line.trim().split(":");
            if (parts.length < 2 || !parts[0].matches("[A-Za-z0-9_.-]+") || !parts[1].matches("[0-9a-fA-F]{64}")) {
                throw new IllegalArgumentException("a line is not name:digest");
            }
            Instant until = parts.length < 3
                ? null
                : LocalDate.parse(parts[2]).plusDays(1).atStartOfDay().toInstant(ZoneOffset.UTC);
            users.put(parts[0], new User(HexFormat.of().parseHex(parts[1].toLowerCase(java.util.Locale.ROOT)), until));
        }
        return users;
    }

    private static byte[] digest(String token) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(token.getBytes(StandardCharsets.UTF_8));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Hive's way to ask: the password is that of the directory, or the token. */
    public static final class Passwords implements PasswdAuthenticationProvider {
        @Override
        public void Authenticate(String user, String password) throws AuthenticationException {
            boolean isUser;
            try {
                isUser = current.isUser(user, password);
            } catch (Refusal refusal) {
                throw new AuthenticationException(refusal.getMessage());
            }
            if (!isUser) {
                throw new AuthenticationException("give a user and, as the password, a token that is valid");
            }
        }
    }
}
