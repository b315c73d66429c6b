package headrace;

import io.delta.storage.LogStore;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.util.Collections;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** `LogStoreRivals CLASS FOLDER COUNT`: several write each of so many commits at once; prints how many were not exactly one's. */
public class LogStoreRivals {
    private static final int WRITERS = 4;

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        int count = Integer.parseInt(arguments[2]);
        AtomicInteger[] writers = new AtomicInteger[count];
        AtomicInteger[] last = new AtomicInteger[count];
        for (int version = 0; version < count; version++) {
            writers[version] = new AtomicInteger();
            last[version] = new AtomicInteger(-1);
        }
        CyclicBarrier barrier = new CyclicBarrier(WRITERS);
        Thread[] threads = new Thread[WRITERS];
        for (int number = 0; number < WRITERS; number++) {
            int writer = number;
            // As processes do, each has a store of its own.
            LogStore store = (LogStore) Class.forName(arguments[0]).getConstructor(Configuration.class).newInstance(configuration);
            threads[number] = new Thread(() -> {
                for (int version = 0; version < count; version++) {
                    try {
                        barrier.await();
                        Path path = new Path("file://" + arguments[1], name(version));
                        store.write(path, Collections.singletonList("writer " + writer).iterator(), false, configuration);
                        writers[version].incrementAndGet();
                        last[version].set(writer);
                    } catch (FileAlreadyExistsException refused) {
                        continue;
                    } catch (Throwable error) {
                        error.printStackTrace();
                        System.exit(1);
                    }
                }
            });
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        int wrong = 0;
        for (int version = 0; version < count; version++) {
            String written = Files.readString(java.nio.file.Path.of(arguments[1], name(version)));
            if (writers[version].get() != 1 || !written.equals("writer " + last[version].get() + "\n")) {
                wrong++;
            }
        }
        System.out.println(wrong);
    }

    private static String name(int version) {
        return String.format("%020d.json", version);
    }
}
