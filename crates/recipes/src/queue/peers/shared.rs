//! Queues that are shared with programs on other libraries: putting, listing, inspecting.

use bytes::Bytes;
use lockkeeper_client::{CreateMode, ErrorCode};

use crate::exact::created_name;
use crate::exact::shared_write::lock;
use crate::queue::admin::{QueueReport, children};
use crate::queue::core::Core;
use crate::queue::error::QueueError;
use crate::queue::layout::{QueueMark, new_id};
use crate::queue::options::PutOptions;
use crate::queue::peer_layouts::QueueLayout;
use crate::queue::peer_names::NameDefaults;
use crate::reads::{children_of, data_of, names_of, stat_of};
use crate::wall_clock::unix_ms;

/// How many items of a listing are tried before the next one, because others may have put an item that comes first.
const TAKES_PER_LISTING: usize = 16;

impl Core {
    pub(crate) fn layout(&self) -> QueueLayout {
        self.places.layout
    }

    /// Fails unless the layout is Lockkeeper's.
    pub(crate) fn require_own_layout(&self, what: &'static str) -> Result<(), QueueError> {
        match self.layout().is_own() {
            true => Ok(()),
            false => Err(self.not_in_layout(what)),
        }
    }

    pub(crate) fn not_in_layout(&self, what: &'static str) -> QueueError {
        let (path, layout) = (self.path().clone(), self.layout());
        QueueError::NotInLayout { path, layout, what, instead: "" }
    }

    /// Creates missing directories. All of these libraries create theirs once, and fail when they are gone; some
    /// are containers, which servers may delete while they are empty.
    pub(crate) async fn open_peers(&self) -> Result<(), QueueError> {
        let data = self.data_in(self.path()).await?;
        if data.is_some_and(|data| QueueMark::read(&data).is_ok()) {
            let found = "a queue in Lockkeeper's layout".to_owned();
            return Err(QueueError::Foreign { path: self.path().clone(), found });
        }
        for directory in
            [Some(&self.places.entries), self.places.peer_claims()].into_iter().flatten()
        {
            loop {
                let made = match self.client.exists(directory).await {
                    Ok(Some(_)) => break,
                    Ok(None) => self.client.ensure(directory, CreateMode::Persistent).await,
                    Err(error) => Err(error),
                };
                match made {
                    Ok(()) => break,
                    Err(error) => self.again(error).await?,
                }
            }
        }
        self.opened();
        Ok(())
    }

    /// Puts these items as other libraries do, all in one transaction, and returns the names of their nodes.
    pub(crate) async fn put_for_peers(
        &self,
        values: &[Bytes],
        options: &PutOptions,
    ) -> Result<Vec<String>, QueueError> {
        if let Some(what) = options.beyond(self.layout().abilities()) {
            return Err(self.not_in_layout(what));
        }
        let mut names = Vec::with_capacity(values.len());
        for _ in values {
            let id = new_id(&self.client);
            let defaults = NameDefaults { now_unix_ms: unix_ms(), id: &id };
            let name = self.layout().new_name(options, &defaults);
            names.push(name.map_err(|reason| self.bad_options(reason))?);
        }

        loop {
            self.ensure_open().await?;
            let steps =
                names.iter().zip(values).fold(self.client.transaction(), |steps, (name, value)| {
                    let node = self.places.entries.child(name).expect("checked before");
                    let data = self.layout().to_data(value);
                    steps.create(&node, data, CreateMode::PersistentSequential)
                });
            match self.write(steps).await {
                Ok(written) => {
                    let results = written.results.unwrap_or_default();
                    let named = |index| {
                        results.get(index).and_then(created_name).unwrap_or_default().to_owned()
                    };
                    return Ok((0..values.len()).map(named).collect());
                }
                Err(error) if matches!(error.refused(), Some((_, ErrorCode::NoNode))) => {
                    self.open().await?;
                }
                Err(error) if error.is_session_expired() => {}
                Err(error) => return Err(error.for_user(self.path(), usize::MAX)),
            }
        }
    }

    pub(crate) fn bad_options(&self, reason: String) -> QueueError {
        QueueError::Options { path: self.path().clone(), reason }
    }

    /// Lists the items, and remembers those to try.
    pub(crate) async fn list_peers(&self) -> Result<(), QueueError> {
        let directories = [Some(&self.places.entries), self.places.peer_claims()];
        let ops: Vec<_> = directories.into_iter().flatten().map(children_of).collect();
        loop {
            let mut listed = self.read_all(ops.clone()).await?.into_iter().map(names_of);
            let (entries, claimed) = (listed.next().flatten(), listed.next());
            // Without claims, this directory is not needed.
            let (Some(entries), Some(claimed)) = (entries, claimed.unwrap_or_else(|| Some(vec![])))
            else {
                self.open().await?;
                continue;
            };

            let items = self.layout().items_of(&entries);
            lock(&self.picks).take_in_named(items, &claimed, unix_ms(), TAKES_PER_LISTING);
            return Ok(());
        }
    }

    /// The state of the queue, as far as its layout has it.
    pub(crate) async fn inspect_peers(&self) -> Result<QueueReport, QueueError> {
        let names = self.names_in(&self.places.entries).await?.ok_or_else(|| self.deleted())?;
        let items = self.layout().items_of(&names);
        let claimed = match self.places.peer_claims() {
            Some(claims) => self.names_in(claims).await?.unwrap_or_default(),
            None => Vec::new(),
        };
        let claimed = items.iter().filter(|item| claimed.contains(&item.entry.id)).count();

        let oldest = items.iter().min_by_key(|item| item.entry.number);
        let nodes = oldest.map(|item| item.entry.node(&self.places));
        let nodes: Vec<_> = nodes.iter().chain([&self.places.line]).map(data_of).collect();
        let stats: Vec<_> = self.read_all(nodes).await?.iter().map(stat_of).collect();
        let since = oldest.and(stats.first().copied().flatten()).map(|stat| stat.ctime);
        Ok(QueueReport {
            waiting: items.len() - claimed,
            claimed,
            idle: stats.last().copied().flatten().map_or(0, children),
            oldest_unix_ms: since.and_then(|since| u64::try_from(since).ok()),
            ..QueueReport::default()
        })
    }
}
