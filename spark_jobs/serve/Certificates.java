package headrace.serve;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.SecureRandom;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;

/** Makes a key store, which is all that Hive reads, of PEM files: in a file of this process alone, under a password of its own. */
public final class Certificates {
    private Certificates() {}

    public record Store(String path, String password) {}

    /** `key` is in PKCS #8, not encrypted. */
    public static Store keyStore(String certificate, String key) throws IOException, GeneralSecurityException {
        Certificate[] chain;
        try (InputStream in = Files.newInputStream(Path.of(certificate))) {
            chain = CertificateFactory.getInstance("X.509").generateCertificates(in).toArray(new Certificate[0]);
        }
        byte[] random = new byte[24];
        new SecureRandom().nextBytes(random);
        String password = Base64.getUrlEncoder().encodeToString(random);
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        store.setKeyEntry("headrace", privateKey(Files.readString(Path.of(key))), password.toCharArray(), chain);
        Path file = Files.createTempFile("headrace-serve", ".p12");
        try (OutputStream out = Files.newOutputStream(file)) {
            store.store(out, password.toCharArray());
        }
        file.toFile().deleteOnExit();
        return new Store(file.toString(), password);
    }

    private static PrivateKey privateKey(String pem) throws GeneralSecurityException {
        String begin = "-----BEGIN PRIVATE KEY-----";
        int start = pem.indexOf(begin);
        int end = pem.indexOf("-----END PRIVATE KEY-----");
        if (start < 0 || end < 0) {
            throw new InvalidKeySpecException("the key is no PEM file in PKCS #8");
        }
        byte[] bytes = Base64.getMimeDecoder().decode(pem.substring(start + begin.length(), end));
        for (String kind : new String[] {"EC", "RSA", "Ed25519"}) {
            try {
                return KeyFactory.getInstance(kind).generatePrivate(new PKCS8EncodedKeySpec(bytes));
            } catch (InvalidKeySpecException another) {
                continue;
            }
        }
        throw new InvalidKeySpecException("the key is none of EC, RSA and Ed25519");
    }
}
