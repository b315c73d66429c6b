package headrace;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.s3a.AWSServiceIOException;
import org.apache.hadoop.fs.s3a.Listing;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.hadoop.fs.s3a.S3AFileStatus;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.S3ListRequest;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Request;

/**
 * Delta's log on S3 for several drivers: a commit's file is put only where there is none (If-None-Match), which S3 decides.
 *
 * A request that is repeated because its answer was lost meets its own file: a file with the same bytes is this commit's own, as
 * every commit has a number of its own in it. Compiled by infra/release/java_build.py.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    private static final int CONFLICT = 409;
    private static final int PRECONDITION_FAILED = 412;
    private static final int TRIES = 20;

    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            lines.write(((String) actions.next()).getBytes(StandardCharsets.UTF_8));
            lines.write('\n');
        }
        byte[] content = lines.toByteArray();
        FileSystem system = path.getFileSystem(configuration);
        if (overwrite.booleanValue()) {
            put(system, path, content, false);
        } else {
            putIfAbsent(system, path, content);
        }
    }

    /**
     * List the files of a folder from a name on, sorted: what is ahead of it is not asked for, however many files a log has.
     *
     * Delta's own such listing is of an earlier Hadoop, and fails with this one.
     */
    public Iterator<FileStatus> listFrom(Path path, Configuration configuration) throws IOException {
        FileSystem system = path.getFileSystem(configuration);
        if (!(system instanceof S3AFileSystem)) {
            return super.listFrom(path, configuration);
        }
        S3AFileSystem s3 = (S3AFileSystem) system;
        Path from = s3.makeQualified(path);
        Path folder = from.getParent();
        String key = s3.pathToKey(folder) + "/";
        String name = from.getName();
        // S3 begins behind a key, and the name's own file belongs to the answer.
        ListObjectsV2Request request = ListObjectsV2Request.builder().bucket(s3.getBucket()).prefix(key).delimiter("/")
            .startAfter(key + name.substring(0, name.length() - 1)).build();
        RemoteIterator<S3AFileStatus> listed = s3.getListing().createFileStatusListingIterator(
            folder, S3ListRequest.v2(request), file -> true, new Listing.AcceptAllButSelfAndS3nDirs(folder), s3.getActiveAuditSpan());
        List<FileStatus> files = new ArrayList<>();
        while (listed.hasNext()) {
            FileStatus file = listed.next();
            if (file.getPath().getName().compareTo(name) >= 0) {
                files.add(file);
            }
        }
        if (files.isEmpty() && !s3.exists(folder)) {
            throw new FileNotFoundException(folder.toString());
        }
        files.sort(Comparator.comparing(file -> file.getPath().getName()));
        return files.iterator();
    }

    /** Say whether the store refuses to put a second file where one is: without it commits of several drivers would be lost. */
    public static boolean excludes(String place, Configuration configuration) throws IOException {
        Path path = new Path(place);
        FileSystem system = path.getFileSystem(configuration);
        try {
            put(system, path, new byte[] {'1'}, true);
            try {
                put(system, path, new byte[] {'2'}, true);
            } catch (IOException refused) {
                return exists(refused);
            }
            return false;
        } finally {
            system.delete(path, false);
        }
    }

    private static void putIfAbsent(FileSystem system, Path path, byte[] content) throws IOException {
        for (int tries = 1; true; tries++) {
            try {
                put(system, path, content, true);
                return;
            } catch (IOException refused) {
                if (exists(refused)) {
                    if (Arrays.equals(content, read(system, path))) {
                        return;
                    }
                    throw new FileAlreadyExistsException(path.toString());
                }
                // Another one puts this file right now: S3 asks for another try, which finds that one's file or none.
                if (!(status(refused) == CONFLICT && tries < TRIES)) {
                    throw refused;
                }
            }
        }
    }

    private static void put(FileSystem system, Path path, byte[] content, boolean ifAbsent) throws IOException {
        FSDataOutputStreamBuilder builder = system.createFile(path);
        builder.overwrite(true);
        builder.recursive();
        if (ifAbsent) {
            builder.must(CONDITIONAL, true);
        }
        FSDataOutputStream out = (FSDataOutputStream) builder.build();
        boolean written = false;
        try {
            out.write(content);
            written = true;
        } finally {
            if (!written) {
                // To close it would put what there is.
                out.abort();
            }
        }
        out.close();
    }

    private static byte[] read(FileSystem system, Path path) throws IOException {
        InputStream in = system.open(path);
        try {
            ByteArrayOutputStream found = new ByteArrayOutputStream();
            byte[] part = new byte[65536];
            for (int count = in.read(part); count >= 0; count = in.read(part)) {
                found.write(part, 0, count);
            }
            return found.toByteArray();
        } finally {
            in.close();
        }
    }

    private static boolean exists(IOException refused) {
        return refused instanceof RemoteFileChangedException
            || refused instanceof org.apache.hadoop.fs.FileAlreadyExistsException
            || status(refused) == PRECONDITION_FAILED;
    }

    private static int status(IOException refused) {
        return refused instanceof AWSServiceIOException ? ((AWSServiceIOException) refused).statusCode() : 0;
    }
}
