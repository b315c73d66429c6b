package headrace.serve;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Hashtable;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.naming.AuthenticationException;
import javax.naming.AuthenticationNotSupportedException;
import javax.naming.Context;
import javax.naming.InvalidNameException;
import javax.naming.NameNotFoundException;
import javax.naming.NamingException;
import javax.naming.NoPermissionException;
import javax.naming.OperationNotSupportedException;
import javax.naming.PartialResultException;
import javax.naming.directory.DirContext;
import javax.naming.directory.InitialDirContext;
import javax.naming.directory.InvalidSearchFilterException;
import javax.naming.directory.SearchControls;
import javax.naming.ldap.LdapName;
import javax.net.SocketFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A directory (LDAP) that knows the users: who may bind to it with a name and a password may ask; or of these, the members of a group,
 * for whom a search that they do themselves finds an entry.
 *
 * It is asked when a JDBC connection is made and, for Spark Connect, whose requests bring the password each, at most once a minute.
 * While it is slow or cannot be reached, nobody new is let in, and nobody else waits for it. Passwords are neither kept nor logged.
 */
final class Directory {
    /** Plain characters: none of them has a meaning in a name of a directory's, or in a filter. */
    private static final String NAMES = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}";
    private static final int LONGEST_PASSWORD = 1_000;
    private static final int MOST_AT_ONCE = 16;
    private static final int SECONDS_TO_CONNECT = 3;
    private static final int SECONDS_TO_ANSWER = 5;
    /** For how long an answer holds; for how long while the directory does not answer; and for how long for a connection that stays. */
    private static final long FRESH = TimeUnit.MINUTES.toNanos(1);
    private static final long WITHOUT_ANSWER = TimeUnit.HOURS.toNanos(1);
    private static final long CONNECTED = TimeUnit.HOURS.toNanos(12);
    private static final Logger LOG = LoggerFactory.getLogger(Directory.class);

    private final String address;
    private final String template;
    /** Where members are searched, and by which filter; both null where all who can bind may ask. */
    private final String base;
    private final String filter;
    private final byte[] salt = new byte[32];
    private final Map<String, Accepted> accepted = new ConcurrentHashMap<>();
    private final ExecutorService asking;
    private volatile boolean answers = true;
    private volatile boolean takesSearches = true;

    /** A name and password that the directory accepted, by a digest that only this process can make. */
    private record Accepted(byte[] digest, long at) {
        boolean isWithin(long nanos) {
            return System.nanoTime() - at < nanos;
        }
    }

    /**
     * `given` is `ldaps://host[:port]/` and the name of a user in the directory, with `{}` for that by which she is known here; and
     * for a group `?base?filter`, with `{}` in one of them.
     */
    Directory(String given) {
        int end = given.indexOf('/', given.indexOf("://") + 3);
        address = given.substring(0, end);
        String[] parts = given.substring(end + 1).split("\\?", 3);
        template = parts[0];
        base = parts.length == 3 ? parts[1] : null;
        filter = parts.length == 3 ? parts[2] : null;
        new SecureRandom().nextBytes(salt);
        asking = new ThreadPoolExecutor(0, MOST_AT_ONCE, 60, TimeUnit.SECONDS, new SynchronousQueue<>(), task -> {
            Thread thread = new Thread(task, "directory of users");
            thread.setDaemon(true);
            // JNDI looks there for the class of sockets.
            thread.setContextClassLoader(Directory.class.getClassLoader());
            return thread;
        });
    }

    /** Whether the directory knows the user by this password, as a member of the group; throws Refusal where it does not answer. */
    boolean isUser(String name, String password) {
        // Many directories take a user without a password for anybody.
        if (name == null || !name.matches(NAMES) || password == null || password.isEmpty()
                || password.length() > LONGEST_PASSWORD || password.indexOf('\0') >= 0) {
            return false;
        }
        String key = name.toLowerCase(Locale.ROOT);
        byte[] digest = digest(key, password);
        Accepted before = accepted.get(key);
        boolean isSame = before != null && MessageDigest.isEqual(before.digest(), digest);
        if (isSame && before.isWithin(FRESH)) {
            return true;
        }
        Future<Boolean> answer = null;
        try {
            answer = asking.submit(() -> bind(name, password));
            boolean isUser = answer.get(SECONDS_TO_CONNECT + SECONDS_TO_ANSWER, TimeUnit.SECONDS);
            answered(null);
            if (isUser) {
                accepted.put(key, new Accepted(digest, System.nanoTime()));
            } else if (isSame) {
                accepted.remove(key);
            }
            return isUser;
        } catch (ExecutionException failed) {
            answered(failed.getCause());
        } catch (TimeoutException | RejectedExecutionException slow) {
            answered(slow);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
        if (answer != null) {
            answer.cancel(true);
        }
        if (isSame && before.isWithin(WITHOUT_ANSWER)) {
            return true;
        }
        throw new Refusal("users cannot be looked up now, since their directory does not answer: try again later");
    }

    /** Whether a user who was let in before may still ask. */
    boolean isStill(String name) {
        Accepted before = accepted.get(name.toLowerCase(Locale.ROOT));
        return before != null && before.isWithin(CONNECTED);
    }

    private boolean bind(String name, String password) throws NamingException {
        Hashtable<String, String> environment = new Hashtable<>();
        environment.put(Context.INITIAL_CONTEXT_FACTORY, "com.sun.jndi.ldap.LdapCtxFactory");
        environment.put(Context.PROVIDER_URL, address);
        environment.put(Context.SECURITY_AUTHENTICATION, "simple");
        environment.put(Context.SECURITY_PRINCIPAL, template.replace("{}", name));
        environment.put(Context.SECURITY_CREDENTIALS, password);
        environment.put(Context.REFERRAL, "ignore");
        environment.put("com.sun.jndi.ldap.connect.timeout", String.valueOf(SECONDS_TO_CONNECT * 1000));
        environment.put("com.sun.jndi.ldap.read.timeout", String.valueOf(SECONDS_TO_ANSWER * 1000));
        if (address.startsWith("ldaps:")) {
            environment.put("java.naming.ldap.factory.socket", Sockets.class.getName());
        }
        try {
            DirContext directory = new InitialDirContext(environment);
            try {
                return filter == null || isMember(directory, name);
            } finally {
                directory.close();
            }
        } catch (AuthenticationException | AuthenticationNotSupportedException | InvalidNameException | NameNotFoundException
                | NoPermissionException | OperationNotSupportedException refused) {
            return false;
        }
    }

    /** Whether the user, who searches herself, finds an entry; no, too, where the directory refuses to search for her. */
    private boolean isMember(DirContext directory, String name) throws NamingException {
        SearchControls controls = new SearchControls();
        controls.setSearchScope(SearchControls.SUBTREE_SCOPE);
        controls.setCountLimit(1);
        controls.setTimeLimit(SECONDS_TO_ANSWER * 1000);
        // None of the entry's attributes.
        controls.setReturningAttributes(new String[] {"1.1"});
        try {
            boolean isMember = directory.search(new LdapName(base.replace("{}", name)), filter.replace("{}", name), controls).hasMore();
            takesSearches = true;
            return isMember;
        } catch (PartialResultException elsewhere) {
            // What another directory has is not asked for.
            return false;
        } catch (NameNotFoundException | InvalidNameException | InvalidSearchFilterException | NoPermissionException
                | OperationNotSupportedException refused) {
            if (refused instanceof NameNotFoundException && base.contains("{}")) {
                // A place of her own, which she does not have.
                return false;
            }
            if (takesSearches) {
                LOG.error("the directory of users refuses the search for members: {}", refused.getClass().getSimpleName());
            }
            takesSearches = false;
            return false;
        }
    }

    /** Log when the directory ceases to answer, and when it answers again; its words may have a user's name. */
    private void answered(Throwable failure) {
        boolean answersNow = failure == null;
        if (answersNow == answers) {
            return;
        }
        answers = answersNow;
        if (answersNow) {
            LOG.warn("the directory of users answers again");
            return;
        }
        Throwable reason = failure;
        while (reason.getCause() != null) {
            reason = reason.getCause();
        }
        LOG.error("the directory of users does not answer: {}", reason.getClass().getSimpleName());
    }

    private byte[] digest(String name, String password) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(salt);
            digest.update(name.getBytes(StandardCharsets.UTF_8));
            digest.update((byte) 0);
            return digest.digest(password.getBytes(StandardCharsets.UTF_8));
        } catch (GeneralSecurityException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** The sockets of ldaps://, which trust whom OpenLDAP's clients trust: LDAPTLS_CACERT, else the JVM's authorities. */
    public static final class Sockets {
        private Sockets() {}

        /** JNDI calls it by this name. */
        public static SocketFactory getDefault() {
            try {
                String file = System.getenv("LDAPTLS_CACERT");
                KeyStore authorities = null;
                if (file != null && !file.isEmpty()) {
                    authorities = KeyStore.getInstance(KeyStore.getDefaultType());
                    authorities.load(null, null);
                    try (InputStream in = Files.newInputStream(Path.of(file))) {
                        int number = 0;
                        for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
                            authorities.setCertificateEntry("authority " + number++, each);
                        }
                    }
                }
                TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
                trust.init(authorities);
                SSLContext context = SSLContext.getInstance("TLS");
                context.init(null, trust.getTrustManagers(), null);
                return context.getSocketFactory();
            } catch (IOException | GeneralSecurityException failed) {
                throw new IllegalStateException("the authorities of the directory cannot be read", failed);
            }
        }
    }
}
