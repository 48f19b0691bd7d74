//! Servers that return in an earlier state, while their transactions have numbers no lower than those seen
//! before: an engine that was restored from a backup, which raises them, and servers that were wiped and
//! written to since. What follows them goes back with them. For servers with lower numbers, see
//! [`crate::wiped`].
//!
//! Each fails, in each of these ways, if only a lower number counts as another history:
//! followers keep the last reported state, and report it as current.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper::{
    Client, CreateMode, Editions, Election, Leaders, Leadership, Notify, PartitionMember,
    Partitions, Pool, PoolError, PoolGuard, Publication, Shared, ValueChange, ValueChanges,
    ZnodePath, Zxid,
};
use lockkeeper_engine::{Engine, Existing, restore};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::proxy::Proxy;
use lockkeeper_testkit::scratch;
use lockkeeper_testkit::zookeeper::Config;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// What nothing comes near unless it waits for a number that does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at what a follower has.
const GLANCE: Duration = Duration::from_millis(10);

const VALUE: &str = "/value";
const SHORT: &str = "/short";
const LONG: &str = "/long";
const NEWS: &str = "/news";
const ELECTION: &str = "/election";
const POOL: &str = "/pool";
const SHARED: &str = "/shared";
const ITEMS: usize = 30;

/// So long that it is written in parts, with a number in front.
fn long(number: u32) -> String {
    format!("{number:010}{}", "x".repeat(500_000))
}

async fn share(client: &Client, name: &str) -> Result<PartitionMember> {
    let items = (0..ITEMS).map(|item| item.to_string());
    Ok(Partitions::builder(client, SHARED).items(items).build()?.join(name).await?)
}

/// Changes everything.
struct Writer {
    client: Client,
    leadership: Option<Leadership>,
    member: Option<PartitionMember>,
}

impl Writer {
    async fn connect(servers: &str) -> Result<Self> {
        Ok(Self { client: Client::connect(servers).await?, leadership: None, member: None })
    }

    /// Gives everything this number. Returns that of the notification.
    async fn write(&mut self, number: u32) -> Result<Zxid> {
        Shared::<u32>::new(&self.client, VALUE)?.set(&number).await?;
        Publication::<u32>::new(&self.client, SHORT)?.publish(&number).await?;
        Publication::<String>::new(&self.client, LONG)?.publish(&long(number)).await?;
        self.lead(number).await?;
        Pool::new(&self.client, POOL)?.change(|things| *things = vec![number.to_string()]).await?;
        if self.member.is_none() {
            self.member = Some(share(&self.client, "writer").await?);
        }
        Ok(Notify::new(&self.client, NEWS)?.notify().await?)
    }

    /// Has this number lead, and proclaim itself.
    async fn lead(&mut self, number: u32) -> Result<()> {
        if let Some(before) = self.leadership.take() {
            before.resign().await?;
        }
        let election = Election::builder(&self.client, ELECTION).id(number.to_string()).build()?;
        let leadership = election.campaign().await?;
        leadership.proclaim(number.to_string()).await?;
        self.leadership = Some(leadership);
        Ok(())
    }

    /// Makes more transactions than these.
    async fn pass(&self, seen: Zxid) -> Result<()> {
        let node = ZnodePath::new("/other")?;
        self.client.ensure(&node, CreateMode::Persistent).await?;
        while self.client.last_zxid() <= seen {
            self.client.set_data(&node, "", None).await?;
        }
        Ok(())
    }

    async fn close(mut self) {
        (self.leadership, self.member) = (None, None);
        self.client.close().await;
    }
}

/// Follows everything, through a proxy.
struct Follower {
    client: Client,
    proxy: Proxy,
    value: ValueChanges<u32>,
    short: Editions<u32>,
    long: Editions<String>,
    leaders: Leaders,
    news: Notify,
    known: Zxid,
    /// Waits for the thing 1.
    acquiring: Option<JoinHandle<Result<PoolGuard, PoolError>>>,
    member: PartitionMember,
}

impl Follower {
    async fn connect(servers: &str) -> Result<Self> {
        let proxy = Proxy::start(servers).await?;
        let client = Client::connect(&proxy.address().to_string()).await?;
        let news = Notify::new(&client, NEWS)?;
        Ok(Self {
            value: Shared::new(&client, VALUE)?.changes(),
            short: Publication::new(&client, SHORT)?.follow(),
            long: Publication::new(&client, LONG)?.follow(),
            leaders: Election::new(&client, ELECTION)?.observe().await?,
            known: news.last().await?,
            acquiring: Some(tokio::spawn({
                let pool = Pool::new(&client, POOL)?.only(["1"]);
                async move { pool.acquire().await }
            })),
            member: share(&client, "follower").await?,
            news,
            client,
            proxy,
        })
    }

    /// Waits until each of the values is this.
    async fn sees(&mut self, number: u32) -> Result<()> {
        let value = async {
            while !matches!(self.value.next().await?, ValueChange::Set(now) if now.value == number)
            {
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, value).await.context("the value")??;
        let short = async {
            while !matches!(self.short.next().await?, ValueChange::Set(now) if now.value == number)
            {
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, short).await.context("the short edition")??;

        let wanted = long(number);
        let long = async {
            while !matches!(self.long.next().await?, ValueChange::Set(now) if now.value == wanted) {
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, long).await.context("the long edition")??;
        ensure!(self.value.is_current() && self.short.is_current() && self.long.is_current());
        Ok(())
    }

    /// Waits until this number leads and has proclaimed itself; `None`: until there is no leader.
    async fn sees_leader(&mut self, number: Option<u32>) -> Result<()> {
        let wanted = number.map(|number| number.to_string());
        let told = async {
            loop {
                let leader = self.leaders.current();
                let value = leader.and_then(|leader| leader.value.clone());
                if leader.map(|leader| &leader.id) == wanted.as_ref() && value == wanted {
                    return anyhow::Ok(());
                }
                self.leaders.next().await?;
            }
        };
        timeout(PATIENCE, told).await.with_context(|| format!("the leader {number:?}"))?
    }

    /// Waits until some other program waits for a thing, as the follower does.
    async fn waits_for_thing(&self) -> Result<()> {
        let pool = Pool::new(&self.client, POOL)?;
        timeout(PATIENCE, async {
            while pool.inspect().await?.waiting.is_empty() {
                sleep(GLANCE).await;
            }
            anyhow::Ok(())
        })
        .await
        .context("a place in line")?
    }

    /// Waits until it gets the resource that became free.
    async fn gets_thing(&mut self) -> Result<()> {
        let acquiring = self.acquiring.take().context("it waits once")?;
        let thing = timeout(PATIENCE, acquiring).await.context("the thing")???;
        ensure!(thing.name() == "1");
        thing.release().await?;
        Ok(())
    }

    /// Waits until it shares the items with the writer, or has all of them.
    async fn shares_items(&self, writer: Option<&Writer>) -> Result<()> {
        let of_writer = || writer.and_then(|it| it.member.as_ref()).map(|it| it.owned().len());
        let is_shared = || match (self.member.owned().len(), of_writer()) {
            (own, None) => own == ITEMS,
            (own, Some(others)) => own > 0 && others > 0 && own + others == ITEMS,
        };
        timeout(PATIENCE, async {
            while !is_shared() {
                sleep(GLANCE).await;
            }
        })
        .await
        .with_context(|| format!("the items: {:?}, {:?}", self.member.owned(), of_writer()))
    }

    /// Waits for a notification after the last one that is known.
    async fn is_notified(&mut self) -> Result<Zxid> {
        let waited = self.news.wait_past(self.known);
        self.known = timeout(PATIENCE, waited).await.context("the notification")??;
        Ok(self.known)
    }
}

#[tokio::test]
async fn what_follows_a_restored_engine_goes_back_with_it() -> Result<()> {
    crate::limited(restored()).await
}

/// The procedure of `docs/engine.md`.
async fn restored() -> Result<()> {
    let folder = scratch::folder()?;
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let start = |address: &str| Engine::builder().listen(address.parse().unwrap()).data_dir(&data);
    let engine = start("127.0.0.1:0").start().await?;
    let servers = engine.connect_string();
    let mut writer = Writer::connect(&servers).await?;
    let first = writer.write(1).await?;
    engine.backup(&backup).await?;
    writer.write(2).await?;

    let mut follower = Follower::connect(&servers).await?;
    follower.sees(2).await?;
    follower.sees_leader(Some(2)).await?;
    follower.waits_for_thing().await?;
    follower.shares_items(Some(&writer)).await?;
    // With nothing to write to the servers that are restored.
    follower.proxy.refuse();
    writer.close().await;
    engine.stop().await?;
    restore(&backup, &data, Existing::Replace, Some(Duration::ZERO))?;
    let engine = start(&servers).start().await?;
    follower.proxy.restore();

    follower.sees(1).await?;
    ensure!(follower.is_notified().await? == first);
    ensure!(follower.client.status().borrow().rewinds == 0, "tokens go on");
    follower.sees_leader(None).await?;
    follower.gets_thing().await?;
    follower.shares_items(None).await?;
    let mut writer = Writer::connect(&servers).await?;
    let third = writer.write(3).await?;
    follower.sees(3).await?;
    follower.sees_leader(Some(3)).await?;
    follower.shares_items(Some(&writer)).await?;
    ensure!(follower.is_notified().await? == third);
    writer.close().await;
    follower.client.close().await;
    engine.stop().await?;
    Ok(())
}

#[tokio::test]
async fn what_follows_a_server_that_was_wiped_and_written_to_goes_back_with_it() -> Result<()> {
    if !peers::ready("contract: wiped and written to on ZooKeeper", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    crate::limited(wiped_and_written_to()).await
}

/// By more transactions than the follower had seen, while it was away.
async fn wiped_and_written_to() -> Result<()> {
    let mut server = Config::new().standalone().await?;
    let mut writer = Writer::connect(&server.connect_string()).await?;
    // More than there are before the first notification after the loss.
    writer.pass(Zxid(200)).await?;
    writer.write(2).await?;
    let mut follower = Follower::connect(&server.connect_string()).await?;
    follower.sees(2).await?;
    follower.sees_leader(Some(2)).await?;
    follower.waits_for_thing().await?;
    follower.shares_items(Some(&writer)).await?;

    follower.proxy.refuse();
    let seen = follower.client.last_zxid();
    writer.close().await;
    server.wipe().await?;
    let mut writer = Writer::connect(&server.connect_string()).await?;
    let first = writer.write(1).await?;
    ensure!(first < follower.known, "{first} is not lower than {}", follower.known);
    writer.pass(seen).await?;
    follower.proxy.restore();

    follower.sees(1).await?;
    follower.sees_leader(Some(1)).await?;
    follower.gets_thing().await?;
    follower.shares_items(Some(&writer)).await?;
    ensure!(follower.is_notified().await? == first);
    ensure!(follower.client.status().borrow().rewinds == 0, "nothing looks lower");
    let third = writer.write(3).await?;
    follower.sees(3).await?;
    follower.sees_leader(Some(3)).await?;
    ensure!(follower.is_notified().await? == third);
    writer.close().await;
    follower.client.close().await;
    Ok(())
}
