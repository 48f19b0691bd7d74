import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZKUtil;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.FourLetterWordMain;

/**
 * What a server must get right below the recipes, as ZooKeeper's own client sees it:
 * {@code JavaBasics CONNECT [tls]}. Stores and passwords are system properties.
 *
 * <p>Prints a line {@code OK <what>} for each that is as on Apache ZooKeeper, else
 * {@code FAILED <what>} with the reason; the exit code tells whether all are fine.
 */
public final class JavaBasics {
    private static final long LIMIT = 20;
    /** Fewer than fill a request; their reply is a third of the longest. */
    private static final int CREATES = 13_000;
    private static final byte[] EMPTY = {};
    private static final byte[] SOME = "x".getBytes(StandardCharsets.UTF_8);

    private final ZooKeeper client;
    private final String address;
    private boolean failed;

    private JavaBasics(ZooKeeper client, String address) {
        this.client = client;
        this.address = address;
    }

    private interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(args[0], 20_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        check(connected.await(LIMIT, TimeUnit.SECONDS), "connected");
        JavaBasics basics = new JavaBasics(client, args[0]);
        basics.run("null data", basics::nullData);
        basics.run("null data in multi", basics::nullDataInMulti);
        basics.run("many creates in one", basics::manyCreatesInOne);
        if (args.length == 1) {
            basics.run("version", basics::version);
        } else {
            basics.run("identity of the certificate", basics::identity);
        }
        client.close();
        System.exit(basics.failed ? 1 : 0);
    }

    private void run(String name, Check check) {
        try {
            check.run();
            System.out.println("OK " + name);
        } catch (Exception | AssertionError error) {
            failed = true;
            System.out.println("FAILED " + name);
            error.printStackTrace();
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }

    private void create(String path, byte[] data, CreateMode mode) throws Exception {
        client.create(path, data, Ids.OPEN_ACL_UNSAFE, mode);
    }

    private void fresh(String path) throws Exception {
        if (client.exists(path, false) != null) {
            ZKUtil.deleteRecursive(client, path);
        }
        create(path, SOME, CreateMode.PERSISTENT);
    }

    private void reads(String path, byte[] expected) throws Exception {
        byte[] data = client.getData(path, false, null);
        check(Arrays.equals(data, expected), path + " is " + Arrays.toString(data));
    }

    private void nullData() throws Exception {
        fresh("/null");
        for (CreateMode mode : Arrays.asList(CreateMode.PERSISTENT, CreateMode.EPHEMERAL, CreateMode.CONTAINER)) {
            create("/null/none-" + mode, null, mode);
            reads("/null/none-" + mode, null);
            create("/null/empty-" + mode, EMPTY, mode);
            reads("/null/empty-" + mode, EMPTY);
        }
        client.setData("/null/empty-PERSISTENT", null, -1);
        reads("/null/empty-PERSISTENT", null);
        client.setData("/null/none-PERSISTENT", EMPTY, -1);
        reads("/null/none-PERSISTENT", EMPTY);
        check(client.exists("/null/empty-PERSISTENT", false).getDataLength() == 0, "its length");
    }

    private void nullDataInMulti() throws Exception {
        fresh("/null-multi");
        client.multi(Arrays.asList(
                Op.create("/null-multi/none", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                Op.create("/null-multi/empty", EMPTY, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                Op.setData("/null-multi", null, -1)));
        reads("/null-multi/none", null);
        reads("/null-multi/empty", EMPTY);
        reads("/null-multi", null);
        List<OpResult> read = client.multi(
                Arrays.asList(Op.getData("/null-multi/none"), Op.getData("/null-multi/empty")));
        check(((OpResult.GetDataResult) read.get(0)).getData() == null, "null in a multi read");
        check(((OpResult.GetDataResult) read.get(1)).getData().length == 0, "empty in a multi read");
    }

    private void manyCreatesInOne() throws Exception {
        fresh("/many");
        List<Op> creates = new ArrayList<>();
        List<Op> deletes = new ArrayList<>();
        for (int i = 0; i < CREATES; i++) {
            String path = "/many/" + i;
            creates.add(Op.create(path, null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
            deletes.add(Op.delete(path, -1));
        }
        List<OpResult> created = client.multi(creates);
        check(created.size() == CREATES, "as many results");
        // In a multi the client leaves its chroot in front of it.
        String last = ((OpResult.CreateResult) created.get(CREATES - 1)).getPath();
        check(last.endsWith("/many/" + (CREATES - 1)), last);
        check(client.getChildren("/many", false).size() == CREATES, "as many children");
        client.multi(deletes);
        client.delete("/many", -1);
    }

    private void version() throws Exception {
        String[] server = address.split("/")[0].split(":");
        String answer = FourLetterWordMain.send4LetterWord(server[0], Integer.parseInt(server[1]), "srvr");
        check(Pattern.compile("^Zookeeper version: 3\\.\\d+\\.\\d+-").matcher(answer).find(), answer);
    }

    /** Only the owner of the certificate may read. */
    private void identity() throws Exception {
        fresh("/mine");
        client.setACL("/mine", Ids.CREATOR_ALL_ACL, -1);
        check(client.getACL("/mine", null).get(0).getId().getScheme().equals("x509"), "by its certificate");
        reads("/mine", SOME);
        client.delete("/mine", -1);
        try {
            client.getData("/mine", false, null);
            throw new AssertionError("still there");
        } catch (KeeperException.NoNodeException expected) {
            // As it should be.
        }
    }
}
