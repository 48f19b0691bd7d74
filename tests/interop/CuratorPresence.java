import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;

/**
 * Keeps a node there until a file appears. Arguments: {@code CONNECT PATH KIND DATA TTL_MS FILE}; see
 * {@code tests/interop/README.md}.
 */
public final class CuratorPresence {
    private CuratorPresence() {
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000,
                new ExponentialBackoffRetry(20, 10));
        byte[] data = args[3].getBytes(StandardCharsets.UTF_8);
        Path file = Path.of(args[5]);
        try (client) {
            client.start();
            client.blockUntilConnected();
            if (args[2].equals("ttl")) {
                try (PersistentTtlNode node = new PersistentTtlNode(client, args[1],
                        Long.parseLong(args[4]), data)) {
                    node.start();
                    there(node.waitForInitialCreate(30, TimeUnit.SECONDS), args[1], file);
                }
            } else {
                try (PersistentNode node = new PersistentNode(client, CreateMode.EPHEMERAL,
                        args[2].equals("protected"), args[1], data)) {
                    node.start();
                    boolean made = node.waitForInitialCreate(30, TimeUnit.SECONDS);
                    there(made, node.getActualPath(), file);
                }
            }
            System.out.println("DONE");
        }
        System.exit(0);
    }

    private static void there(boolean made, String path, Path file) throws Exception {
        System.out.println(made ? "PRESENT " + path : "ABSENT");
        while (!Files.exists(file)) {
            Thread.sleep(20);
        }
    }
}
