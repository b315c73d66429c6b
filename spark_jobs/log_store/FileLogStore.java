package headrace;

import io.delta.storage.HDFSLogStore;
import java.io.BufferedOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.UUID;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Delta's log on a file system of this machine, or one that is mounted: a commit's file is linked only where there is none, which
 * the file system decides.
 *
 * Delta's own store looks whether there is a file and then renames its own to that name: of two processes that commit at the same
 * moment one replaces the commit of the other, and both go on as if they had committed. Without links in a file system Delta's own
 * is used. Compiled by infra/release/java_build.py.
 */
public class FileLogStore extends HDFSLogStore {
    public FileLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration) throws IOException {
        java.nio.file.Path file = local(path);
        if (!overwrite.booleanValue() && Files.exists(file)) {
            throw new FileAlreadyExistsException(path.toString());
        }
        java.nio.file.Path scratch = beside(file);
        try {
            fill(scratch, actions, FsPermission.getFileDefault().applyUMask(FsPermission.getUMask(configuration)));
            // Hadoop would compare this file with the checksum of one that is replaced, or was removed as where a folder is restored.
            Files.deleteIfExists(file.resolveSibling("." + file.getFileName() + ".crc"));
            if (overwrite.booleanValue()) {
                Files.move(scratch, file, StandardCopyOption.ATOMIC_MOVE);
            } else if (!link(scratch, file)) {
                // Of one process at least one after the other.
                synchronized (FileLogStore.class) {
                    try (Stream<String> lines = Files.lines(scratch)) {
                        super.write(path, lines.iterator(), overwrite, configuration);
                    }
                }
            }
        } catch (NoSuchFileException missing) {
            throw new FileNotFoundException(missing.getMessage());
        } finally {
            remove(scratch);
        }
    }

    private static void fill(java.nio.file.Path scratch, Iterator<String> lines, FsPermission permission) throws IOException {
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(scratch, StandardOpenOption.CREATE_NEW))) {
            while (lines.hasNext()) {
                out.write((lines.next() + "\n").getBytes(StandardCharsets.UTF_8));
            }
        }
        try {
            // Like the table's other files, whose rights do not depend on the process.
            Files.setPosixFilePermissions(scratch, PosixFilePermissions.fromString(permission.toString()));
        } catch (UnsupportedOperationException none) {
            return;
        }
    }

    /**
     * Give a file its name in the log; return whether the file system can.
     *
     * Throws FileAlreadyExistsException where another commit has the name.
     */
    private static boolean link(java.nio.file.Path scratch, java.nio.file.Path file) throws IOException {
        try {
            Files.createLink(file, scratch);
        } catch (FileSystemException | UnsupportedOperationException refused) {
            if (refused instanceof FileAlreadyExistsException || Files.exists(file)) {
                // A request that a file server had carried out, and whose answer was lost, meets its own file.
                if (!Files.isSameFile(file, scratch)) {
                    throw new FileAlreadyExistsException(file.toString());
                }
            } else if (hasLinks(scratch)) {
                throw refused;
            } else {
                return false;
            }
        }
        return true;
    }

    private static boolean hasLinks(java.nio.file.Path file) {
        java.nio.file.Path second = beside(file);
        try {
            Files.createLink(second, file);
        } catch (IOException | UnsupportedOperationException none) {
            return false;
        }
        remove(second);
        return true;
    }

    /** Return a name for a file that no listing of a log has; as Delta's own store has them. */
    private static java.nio.file.Path beside(java.nio.file.Path file) {
        return file.resolveSibling("." + file.getFileName() + "." + UUID.randomUUID() + ".tmp");
    }

    private static void remove(java.nio.file.Path scratch) {
        try {
            Files.deleteIfExists(scratch);
        } catch (IOException left) {
            // The commit counts, or not, all the same; maintenance removes what is left.
            return;
        }
    }

    /**
     * List the files of a folder from a name on, sorted. Of names ahead of it nothing but the name is asked for, and of those behind
     * it as they are taken: a log has hundreds of thousands, and Hadoop asks for each.
     */
    public Iterator<FileStatus> listFrom(Path path, Configuration configuration) throws IOException {
        Path folder = path.getFileSystem(configuration).makeQualified(path).getParent();
        List<String> names = new ArrayList<>();
        try (DirectoryStream<java.nio.file.Path> files = Files.newDirectoryStream(local(folder))) {
            for (java.nio.file.Path file : files) {
                String name = file.getFileName().toString();
                if (name.compareTo(path.getName()) >= 0 && !isChecksum(name)) {
                    names.add(name);
                }
            }
        } catch (NoSuchFileException | NotDirectoryException missing) {
            throw new FileNotFoundException(folder.toString());
        } catch (DirectoryIteratorException error) {
            throw error.getCause();
        }
        Collections.sort(names);
        return new Listing(folder, names.iterator());
    }

    /** Whether a name is of what Hadoop keeps beside a file, and shows nobody. */
    private static boolean isChecksum(String name) {
        return name.startsWith(".") && name.endsWith(".crc");
    }

    private static java.nio.file.Path local(Path path) {
        return java.nio.file.Path.of(path.toUri().getPath());
    }

    /**
     * The files of a folder by their names, without those that are gone since.
     *
     * Old commits are removed from the first one on. One that is gone behind one that was given is a gap, which is an error: who
     * reads the changes of versions from such a list, or a table's state, would not see it.
     */
    private static final class Listing implements Iterator<FileStatus> {
        private static final Pattern COMMIT = Pattern.compile("\\d{20}\\.json");
        private final Path folder;
        private final Iterator<String> names;
        private FileStatus next;
        private boolean hasCommit;

        Listing(Path folder, Iterator<String> names) {
            this.folder = folder;
            this.names = names;
        }

        public boolean hasNext() {
            while (next == null && names.hasNext()) {
                String name = names.next();
                boolean isCommit = COMMIT.matcher(name).matches();
                // A name is not parsed: it may have a colon.
                Path path = new Path(folder, new Path(null, null, name));
                try {
                    BasicFileAttributes file = Files.readAttributes(local(path), BasicFileAttributes.class);
                    long modified = file.lastModifiedTime().toMillis();
                    next = new FileStatus(file.isDirectory() ? 0 : file.size(), file.isDirectory(), 1, 0, modified, path);
                    hasCommit |= isCommit;
                } catch (NoSuchFileException gone) {
                    if (isCommit && hasCommit) {
                        throw new UncheckedIOException(new FileNotFoundException(path.toString()));
                    }
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
            return next != null;
        }

        public FileStatus next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            FileStatus status = next;
            next = null;
            return status;
        }
    }
}
