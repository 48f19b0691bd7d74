import java.nio.charset.StandardCharsets;
import java.util.concurrent.Callable;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;

/**
 * Adds 1 to one of Apache Curator's counters so many times, or changes a shared value once. Arguments:
 * {@code CONNECT PATH KIND ADDS [SECONDS]}; see {@code tests/interop/README.md}.
 */
public final class CuratorCounter {
    /** When it ends, whatever is left to add; by {@code System.nanoTime}. */
    private static long end;

    private CuratorCounter() {
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000,
                new RetryNTimes(1000, 20));
        try (client) {
            client.start();
            client.blockUntilConnected();
            int adds = Integer.parseInt(args[3]);
            long seconds = args.length > 4 ? Long.parseLong(args[4]) : 3600;
            end = System.nanoTime() + seconds * 1_000_000_000L;
            switch (args[2]) {
                case "long":
                    DistributedAtomicLong big = new DistributedAtomicLong(client, args[1],
                            new ExponentialBackoffRetry(5, 20));
                    add(adds, () -> told(big.add(1L)));
                    break;
                case "int":
                    DistributedAtomicInteger small = new DistributedAtomicInteger(client, args[1],
                            new ExponentialBackoffRetry(5, 20));
                    add(adds, () -> told(small.add(1)));
                    break;
                case "shared":
                    addShared(client, args[1], adds);
                    break;
                case "text":
                    addText(client, args[1], adds);
                    break;
                default:
                    changeValue(client, args[1]);
            }
            System.out.println("DONE");
        }
        System.exit(0);
    }

    /** Adds so many times; `once` gives the value before, or null if nothing was added. */
    private static void add(int adds, Callable<Long> once) throws Exception {
        for (int done = 0; done < adds && System.nanoTime() < end;) {
            Long before = once.call();
            if (before != null) {
                System.out.println("ADDED " + before + " " + (before + 1));
                done++;
            }
        }
    }

    private static Long told(AtomicValue<? extends Number> added) {
        if (!added.succeeded()) {
            return null;
        }
        long before = added.preValue().longValue();
        if (added.postValue().longValue() != before + 1) {
            throw new IllegalStateException(before + " and 1 is " + added.postValue());
        }
        return before;
    }

    private static void addShared(CuratorFramework client, String path, int adds)
            throws Exception {
        try (SharedCount counter = new SharedCount(client, path, 0)) {
            counter.start();
            add(adds, () -> {
                VersionedValue<Integer> old = counter.getVersionedValue();
                boolean added = counter.trySetCount(old, old.getValue() + 1);
                return added ? Long.valueOf(old.getValue()) : null;
            });
        }
    }

    /** A value that is the digits of a number. */
    private static void addText(CuratorFramework client, String path, int adds) throws Exception {
        try (SharedValue value = new SharedValue(client, path, digits(0))) {
            value.start();
            add(adds, () -> {
                VersionedValue<byte[]> old = value.getVersionedValue();
                long before = Long.parseLong(new String(old.getValue(), StandardCharsets.UTF_8));
                return value.trySetValue(old, digits(before + 1)) ? before : null;
            });
        }
    }

    private static byte[] digits(long number) {
        return Long.toString(number).getBytes(StandardCharsets.UTF_8);
    }

    private static void changeValue(CuratorFramework client, String path) throws Exception {
        try (SharedValue value = new SharedValue(client, path, new byte[0])) {
            value.start();
            System.out.println("VALUE " + new String(value.getValue(), StandardCharsets.UTF_8));
            value.setValue("by Curator".getBytes(StandardCharsets.UTF_8));
        }
    }
}
