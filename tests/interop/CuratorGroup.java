import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A member of a group, until it is killed. Arguments: {@code CONNECT PATH KIND ID SESSION_MS}; see
 * {@code tests/interop/README.md}.
 */
public final class CuratorGroup {
    private CuratorGroup() {
    }

    public static void main(String[] args) throws Exception {
        int session = Integer.parseInt(args[4]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], session, 10000,
                new ExponentialBackoffRetry(20, 10));
        client.getConnectionStateListenable()
                .addListener((who, state) -> System.out.println("STATE " + state));
        client.start();
        client.blockUntilConnected();
        byte[] payload = "java".getBytes(StandardCharsets.UTF_8);
        GroupMember member = new GroupMember(client, args[1], args[3], payload);
        member.start();
        while (true) {
            System.out.println(
                    "LOOK " + String.join(",", new TreeSet<>(member.getCurrentMembers().keySet())));
            Thread.sleep(50);
        }
    }
}
