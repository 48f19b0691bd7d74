import java.nio.charset.StandardCharsets;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Adds 1 to one of Apache Curator's counters so many times, or changes a shared value once. Arguments:
 * {@code CONNECT PATH KIND ADDS [SECONDS]}; see {@code tests/interop/README.md}.
 */
public final class CuratorCounter {
    /** When it ends, whatever is left to add; by {@code System.nanoTime}. */
    private static long end;

    private CuratorCounter() {
    }

    private static boolean goesOn(int done, int adds) {
        return done < adds && System.nanoTime() < end;
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000,
                new ExponentialBackoffRetry(20, 10));
        try (client) {
            client.start();
            client.blockUntilConnected();
            int adds = Integer.parseInt(args[3]);
            long seconds = args.length > 4 ? Long.parseLong(args[4]) : 3600;
            end = System.nanoTime() + seconds * 1_000_000_000L;
            switch (args[2]) {
                case "long":
                    addLong(client, args[1], adds);
                    break;
                case "int":
                    addInteger(client, args[1], adds);
                    break;
                case "shared":
                    addShared(client, args[1], adds);
                    break;
                default:
                    changeValue(client, args[1]);
            }
            System.out.println("DONE");
        }
        System.exit(0);
    }

    private static void addLong(CuratorFramework client, String path, int adds) throws Exception {
        DistributedAtomicLong counter =
                new DistributedAtomicLong(client, path, new ExponentialBackoffRetry(5, 20));
        for (int done = 0; goesOn(done, adds);) {
            AtomicValue<Long> added = counter.add(1L);
            if (added.succeeded()) {
                System.out.println("ADDED " + added.preValue() + " " + added.postValue());
                done++;
            }
        }
    }

    private static void addInteger(CuratorFramework client, String path, int adds)
            throws Exception {
        DistributedAtomicInteger counter =
                new DistributedAtomicInteger(client, path, new ExponentialBackoffRetry(5, 20));
        for (int done = 0; goesOn(done, adds);) {
            AtomicValue<Integer> added = counter.add(1);
            if (added.succeeded()) {
                System.out.println("ADDED " + added.preValue() + " " + added.postValue());
                done++;
            }
        }
    }

    private static void addShared(CuratorFramework client, String path, int adds)
            throws Exception {
        try (SharedCount counter = new SharedCount(client, path, 0)) {
            counter.start();
            for (int done = 0; goesOn(done, adds);) {
                VersionedValue<Integer> old = counter.getVersionedValue();
                if (counter.trySetCount(old, old.getValue() + 1)) {
                    System.out.println("ADDED " + old.getValue() + " " + (old.getValue() + 1));
                    done++;
                }
            }
        }
    }

    private static void changeValue(CuratorFramework client, String path) throws Exception {
        try (SharedValue value = new SharedValue(client, path, new byte[0])) {
            value.start();
            System.out.println("VALUE " + new String(value.getValue(), StandardCharsets.UTF_8));
            value.setValue("by Curator".getBytes(StandardCharsets.UTF_8));
        }
    }
}
