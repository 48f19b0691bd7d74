import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/**
 * Puts items into one of Apache Curator's queues, or takes them. Arguments:
 * {@code CONNECT SESSION_MS PATH LOCK_PATH KIND NAME STATE COUNT}; see {@code tests/interop/README.md}.
 */
public final class CuratorQueue implements QueueConsumer<String>, QueueSerializer<String> {
    private final String name;
    private final Path state;

    private CuratorQueue(String name, Path state) {
        this.name = name;
        this.state = state;
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], Integer.parseInt(args[1]), 10000,
                new RetryNTimes(1000, 20));
        int count = Integer.parseInt(args[7]);
        CuratorQueue own = new CuratorQueue(args[5], Path.of(args[6]));
        try (client) {
            client.start();
            client.blockUntilConnected();
            if (args[4].equals("simple")) {
                own.simple(new SimpleDistributedQueue(client, args[2]), count);
            } else {
                QueueBuilder<String> builder = QueueBuilder.builder(client, count > 0 ? null : own, own, args[2])
                        .putInBackground(false);
                if (!args[3].equals("-")) {
                    builder = builder.lockPath(args[3]);
                }
                own.run(builder, args[4], count);
            }
            System.out.println("DONE");
        }
        System.exit(0);
    }

    private void run(QueueBuilder<String> builder, String kind, int count) throws Exception {
        switch (kind) {
            case "priority": {
                DistributedPriorityQueue<String> queue = builder.buildPriorityQueue(0);
                run(queue, count, (item, number) -> queue.put(item, -number));
                break;
            }
            case "delay": {
                DistributedDelayQueue<String> queue = builder.buildDelayQueue();
                run(queue, count, (item, number) -> queue.put(item, System.currentTimeMillis() + 300));
                break;
            }
            case "id": {
                DistributedIdQueue<String> queue = builder.buildIdQueue();
                run(queue, count, (item, number) -> queue.put(item, item));
                break;
            }
            default: {
                DistributedQueue<String> queue = builder.buildQueue();
                run(queue, count, (item, number) -> queue.put(item));
            }
        }
    }

    private interface Put {
        void put(String item, int number) throws Exception;
    }

    private void run(QueueBase<String> queue, int count, Put put) throws Exception {
        try (queue) {
            queue.start();
            if (count > 0) {
                puts(count, put);
            } else {
                System.out.println("READY");
                ended();
            }
        }
    }

    private void simple(SimpleDistributedQueue queue, int count) throws Exception {
        if (count > 0) {
            puts(count, (item, number) -> queue.offer(serialize(item)));
            return;
        }
        queue.peek();
        System.out.println("READY");
        while (Files.notExists(Path.of("end"))) {
            byte[] bytes = queue.poll(100, TimeUnit.MILLISECONDS);
            if (bytes != null) {
                consumeMessage(deserialize(bytes));
            }
        }
    }

    /** Puts so many items, when there is the file `go`. */
    private void puts(int count, Put put) throws Exception {
        System.out.println("READY");
        await("go");
        for (int number = 0; number < count; number++) {
            String item = name + "-" + number;
            put.put(item, number);
            System.out.println("PUT " + item);
        }
    }

    private static void ended() throws Exception {
        await("end");
    }

    private static void await(String file) throws Exception {
        while (Files.notExists(Path.of(file))) {
            Thread.sleep(10);
        }
    }

    /** Works on an item, and looks whether somebody else does so too. */
    @Override
    public void consumeMessage(String item) throws Exception {
        Path own = Files.createFile(state.resolve(item + "@" + name));
        try (var others = Files.newDirectoryStream(state, item + "@*")) {
            for (Path other : others) {
                if (!other.equals(own)) {
                    System.out.println("VIOLATION " + other.getFileName());
                }
            }
        }
        System.out.println("BEGINS " + item);
        if (item.startsWith("slow")) {
            await("go");
        }
        Thread.sleep((long) (Math.random() * 20));
        System.out.println("TOOK " + item);
        Files.delete(own);
    }

    @Override
    public void stateChanged(CuratorFramework client, ConnectionState newState) {
    }

    @Override
    public byte[] serialize(String item) {
        return item.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public String deserialize(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
