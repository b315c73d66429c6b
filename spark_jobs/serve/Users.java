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
 * Who may ask: a file of lines `name:digest` or `name:digest:date`, the digest being SHA-256 of the user's token in hexadecimal
 * digits, the date the last day (UTC) on which it is valid. The file is read again when it has changed; while it cannot be read,
 * nobody may ask.
 */
public final class Users {
    /** The name of everybody where no users are known, which is on a loopback address alone. */
    static final String EVERYBODY = "everybody";
    private static volatile Users current = new Users("");

    private final Path file;
    private Map<String, User> byName = Map.of();
    private Object read;

    private record User(byte[] digest, Instant until) {
        boolean isValid() {
            return until == null || Instant.now().isBefore(until);
        }
    }

    /** `file` is empty for everybody. */
    public Users(String file) {
        this.file = file.isEmpty() ? null : Path.of(file);
        current = this;
    }

    /** Return the user whose token a header brings; null for none. */
    synchronized String ofBearer(String header) {
        if (file == null) {
            return EVERYBODY;
        }
        if (header == null || !header.regionMatches(true, 0, "Bearer ", 0, 7)) {
            return null;
        }
        byte[] digest = digest(header.substring(7).trim());
        String name = null;
        for (Map.Entry<String, User> each : known().entrySet()) {
            // All are compared, whichever it is.
            if (MessageDigest.isEqual(each.getValue().digest(), digest) && each.getValue().isValid()) {
                name = each.getKey();
            }
        }
        return name;
    }

    synchronized boolean isUser(String name, String token) {
        User user = known().get(name);
        return user != null && MessageDigest.isEqual(user.digest(), digest(token)) && user.isValid();
    }

    /** Whether a user who was let in before may still ask. */
    synchronized boolean isStill(String name) {
        if (file == null) {
            return true;
        }
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

    /** Hive's way to ask: the password is the token. */
    public static final class Passwords implements PasswdAuthenticationProvider {
        @Override
        public void Authenticate(String user, String password) throws AuthenticationException {
            if (!current.isUser(user, password)) {
                throw new AuthenticationException("give a user and, as the password, a token that is valid");
            }
        }
    }
}
