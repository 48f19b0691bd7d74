//! The state of a tree cache, and the reads that it needs. No I/O and no clock.
//!
//! A server sends the event of a change before any answer that includes it. So:
//!
//! - An event makes its path *dirty*. An answer about a path is newer than every event that arrived
//!   before it, so the path is clean again, unless another event came later.
//! - When an answer arrives and no path is dirty due to an earlier event, everything that is known was
//!   read before and has not changed until then. So the view is the server's tree after the last
//!   transaction that the answer names: an *exact cut*.
//!
//! The children of a node are known from its listing, or from the start if the node was created after the
//! watch was set: each of them causes an event then.
//!
//! Changes of access control lists cause no events. If requested ([`Scope::skips_unreadable`]), a node that may not
//! be read is left out, and read again at intervals.
//!
//! If the last change of the root's children must be known ([`Scope::knows_pzxid`]), an event that reports a
//! deleted child causes a read of the root instead. The child stays in the view until that read is answered: an
//! answer from before the event still makes a cut.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use lockkeeper_client::{Arrival, EventKind, Rearms, Stat, Zxid};

use crate::watch::error::CacheError;
use crate::watch::snapshot::{CachedNode, Tree};

/// The default maximum number of nodes.
const MAX_NODES: usize = 1_000_000;

/// The default maximum size of names and data, in bytes.
const MAX_BYTES: usize = 1 << 30;

/// Whether a path, and everything below it, is included.
pub(crate) type Filter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Which nodes are included, and their limits.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) root: String,
    pub(crate) max_nodes: usize,
    pub(crate) max_bytes: usize,
    /// The number of levels below the root.
    pub(crate) max_depth: usize,
    /// Whether a cut knows the transaction that last changed the children of the root: the larger one of
    /// the root's `pzxid` and the last creation among its children.
    pub(crate) knows_pzxid: bool,
    pub(crate) filter: Option<Filter>,
    /// Whether nodes below the root that may not be read are left out.
    pub(crate) skips_unreadable: bool,
    /// The longest answer that the client accepts, in bytes.
    pub(crate) max_frame: usize,
}

impl Scope {
    /// Everything at and below a path, with the default limits.
    pub(crate) fn new(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            max_nodes: MAX_NODES,
            max_bytes: MAX_BYTES,
            max_depth: usize::MAX,
            knows_pzxid: false,
            filter: None,
            skips_unreadable: false,
            max_frame: usize::MAX,
        }
    }
}

lockkeeper_client::impl_debug!(Scope, self => root: self.root);

/// The smallest size of a child in a listing, in bytes: its length, and one character.
const MIN_NAME_BYTES: usize = 5;

/// What a read asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ReadKind {
    /// Its data and stat.
    Data,
    /// Its children.
    List,
}

/// A read that has to be made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Read {
    pub(crate) path: Arc<str>,
    pub(crate) question: ReadKind,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Data(CachedNode),
    Names(Vec<String>),
    Nothing,
    /// The node may not be read, or is longer than the client accepts.
    Unreadable,
    /// No answer arrived. The read must be repeated.
    NoAnswer,
}

/// Why a read is needed.
#[derive(Clone, Copy, Debug)]
struct DirtyMark {
    /// When the path became dirty.
    first: Arrival,
    /// An answer must arrive after this to be new enough.
    last: Arrival,
    in_flight: bool,
    /// The children may differ from the known ones, without an event: since these reconnects.
    suspect: Option<Rearms>,
    /// The last event reported the node's deletion, and the root is read instead.
    is_gone: bool,
}

/// The known state of a part of the tree.
#[derive(Debug)]
pub(crate) struct View {
    scope: Scope,
    tree: Tree,
    /// The nodes that may not be read, or are too long. Nodes below them are unknown.
    unreadable: Arc<BTreeSet<Arc<str>>>,
    /// The last answer.
    newest: Arrival,
    marks: HashMap<Read, DirtyMark>,
    /// The marks, by the time since which the view differs from the server's tree.
    by_first: BTreeSet<(Arrival, Read)>,
    ready: VecDeque<Read>,
    /// When the watch was set.
    watched_since: Arrival,
    /// Every child of a node created after this transaction has caused an event. `None` until the first answer that
    /// came after the watch was set.
    told_from: Option<Zxid>,
    /// The paths of changes since they were last taken; not recorded before the first time.
    touched: Option<BTreeSet<String>>,
}

impl View {
    /// An empty view. It is read after the watch was requested.
    pub(crate) fn new(scope: Scope) -> Self {
        let tree = Tree::new(&scope.root);
        let mut view = Self {
            tree,
            unreadable: Arc::default(),
            newest: Arrival::START,
            marks: HashMap::new(),
            by_first: BTreeSet::new(),
            ready: VecDeque::new(),
            watched_since: Arrival::START,
            told_from: None,
            touched: None,
            scope,
        };

        // Both at once, because a cached path usually has children.
        for question in [ReadKind::Data, ReadKind::List] {
            view.mark(view.root(), question, Arrival::START, Arrival::START);
        }
        view
    }

    fn root(&self) -> Arc<str> {
        self.scope.root.as_str().into()
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The nodes that may not be read.
    pub(crate) fn unreadable(&self) -> &Arc<BTreeSet<Arc<str>>> {
        &self.unreadable
    }

    /// Whether a node is left out if it may not be read.
    pub(crate) fn skips(&self, path: &str) -> bool {
        self.scope.skips_unreadable && path != self.scope.root
    }

    /// Takes the paths at which the tree may have changed.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<String> {
        self.touched.replace(BTreeSet::new()).unwrap_or_default()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether the view equals the server's tree at an answer that arrived then.
    pub(crate) fn is_cut(&self, arrival: Arrival) -> bool {
        self.by_first.first().is_none_or(|(first, _)| *first > arrival)
    }

    // ----- events and answers -----------------------------------------------------------------

    /// The watch was set, perhaps several times: all earlier knowledge is suspect.
    pub(crate) fn watched(&mut self, rearms: Rearms) {
        let Rearms { first, last } = rearms;
        (self.watched_since, self.told_from) = (last, None);

        let mut paths = vec![self.root()];
        self.tree.walk(|path, _| paths.push(path.into()));
        paths.extend(self.unreadable.iter().cloned());
        for path in paths {
            self.mark(path, ReadKind::Data, first, last);
        }

        // Answers in flight are from before, also those about nodes that are not known yet.
        for (read, mark) in &mut self.marks {
            mark.last = mark.last.max(last);
            if read.question == ReadKind::Data {
                mark.suspect = Some(rearms.after(mark.suspect));
            }
        }
    }

    /// Handles events of a node: the first and the last one, and the kind of the last one.
    pub(crate) fn event(&mut self, path: &str, kind: EventKind, first: Arrival, last: Arrival) {
        if !self.is_wanted(path) {
            return;
        }
        self.mark(path.into(), ReadKind::Data, first, last);

        if !self.scope.knows_pzxid || self.depth(path) != 1 {
            return;
        }
        let is_gone = kind == EventKind::NodeDeleted;
        let read = Read { path: path.into(), question: ReadKind::Data };
        if let Some(mark) = self.marks.get_mut(&read) {
            mark.is_gone = is_gone;
        }
        // Of several events only the last one is known: the node may have been missing before it.
        if is_gone || first < last {
            self.mark(self.root(), ReadKind::Data, first, last);
        }
    }

    /// Reads unreadable nodes again, because no event reports when they become readable.
    pub(crate) fn look_again(&mut self) {
        for path in Arc::clone(&self.unreadable).iter() {
            self.mark(path.clone(), ReadKind::Data, self.newest.next(), self.newest);
        }
    }

    /// Reads in flight will not be answered.
    pub(crate) fn abandon_reads(&mut self) {
        let abandoned = self
            .marks
            .iter_mut()
            .filter_map(|(read, mark)| std::mem::take(&mut mark.in_flight).then(|| read.clone()));
        let mut reads: Vec<_> = abandoned.collect();
        // In an order that does not depend on the storage, so that runs are reproducible.
        reads.sort();
        self.ready.extend(reads);
    }

    /// The next read to make.
    pub(crate) fn next_read(&mut self) -> Option<Read> {
        while let Some(read) = self.ready.pop_front() {
            if let Some(mark) = self.marks.get_mut(&read)
                && !(mark.in_flight || mark.is_gone)
            {
                mark.in_flight = true;
                return Some(read);
            }
        }
        None
    }

    /// Handles the answer to a read, or the lack of one.
    ///
    /// # Errors
    /// If the tree exceeds a bound.
    pub(crate) fn answer(
        &mut self,
        read: &Read,
        found: ReadOutcome,
        arrival: Arrival,
        zxid: Zxid,
    ) -> Result<(), CacheError> {
        if self.told_from.is_none()
            && arrival > self.watched_since
            && found != ReadOutcome::NoAnswer
        {
            self.told_from = Some(zxid);
        }
        self.newest = self.newest.max(arrival);
        let Some(mut mark) = self.take_mark(read) else { return Ok(()) };
        mark.in_flight = false;

        let is_answered = found != ReadOutcome::NoAnswer;
        if is_answered && *read.path == *self.scope.root {
            self.remove_gone(arrival);
        }
        // An answer from between two reconnects includes the changes missed at the first one. It is recorded as the
        // state with which the answer after the last reconnect is compared.
        let suspect = is_answered && mark.suspect.is_some_and(|rearms| arrival > rearms.first);
        if is_answered {
            mark.suspect.take_if(|rearms| arrival > rearms.last);
        }
        let is_known = match found {
            ReadOutcome::NoAnswer => false,
            ReadOutcome::Data(node) => {
                self.insert(&read.path, node, arrival, suspect, mark.first)?
            }
            ReadOutcome::Names(names) => {
                self.list(&read.path, &names, arrival)?;
                true
            }
            ReadOutcome::Nothing => {
                self.remove(&read.path);
                true
            }
            ReadOutcome::Unreadable => {
                self.hide(&read.path, arrival);
                true
            }
        };

        if !is_known {
            self.put_mark(read.clone(), mark);
        } else if mark.last > arrival {
            mark.first = arrival.next();
            self.put_mark(read.clone(), mark);
        }
        self.check_bounds()
    }

    // ----- internals --------------------------------------------------------------------------

    /// Removes the children whose deletion was reported before an answer about the root.
    fn remove_gone(&mut self, arrival: Arrival) {
        let is_gone = |(_, mark): &(&Read, &DirtyMark)| mark.is_gone && mark.last < arrival;
        let gone: Vec<_> =
            self.marks.iter().filter(is_gone).map(|(read, _)| read.clone()).collect();
        for read in gone {
            self.take_mark(&read);
            self.remove(&read.path);
        }
    }

    fn remove(&mut self, path: &str) {
        for path in self.tree.remove(path) {
            self.touch(path);
        }
        // Paths below start with the path and a `/`, which is followed by `0` in order.
        let path = path.trim_end_matches('/');
        let (from, to) = (format!("{path}/"), format!("{path}0"));
        let below = (Bound::Included(&*from), Bound::Excluded(&*to));
        let gone: Vec<_> = self.unreadable.range::<str, _>(below).cloned().collect();
        for hidden in gone.iter().map(|hidden| &**hidden).chain([path]) {
            self.reveal(hidden);
        }
    }

    /// Removes a node that may not be read, and records that.
    fn hide(&mut self, path: &Arc<str>, arrival: Arrival) {
        if !self.unreadable.contains(path) {
            self.remove(path);
            Arc::make_mut(&mut self.unreadable).insert(path.clone());
            self.touch(path.to_string());
        }
        if self.scope.knows_pzxid {
            // Its creation is unknown; it may be another node than the last time.
            self.mark(self.root(), ReadKind::Data, arrival, arrival);
        }
    }

    /// Forgets that a node may not be read; returns whether it was recorded.
    fn reveal(&mut self, path: &str) -> bool {
        let was_hidden = self.unreadable.contains(path);
        if was_hidden {
            Arc::make_mut(&mut self.unreadable).remove(path);
            self.touch(path.to_owned());
        }
        was_hidden
    }

    fn is_below_unreadable(&self, path: &str) -> bool {
        let mut above = std::iter::successors(parent(path), |path| parent(path));
        above.any(|path| self.unreadable.contains(path))
    }

    /// Records data; returns whether that was possible.
    fn insert(
        &mut self,
        path: &Arc<str>,
        node: CachedNode,
        arrival: Arrival,
        suspect: bool,
        first: Arrival,
    ) -> Result<bool, CacheError> {
        let old = self.tree.get(path).map(|old| *old.stat());
        let new = *node.stat();
        if self.reveal(path) {
            // Events of nodes below it were skipped.
            self.told_from = None;
        }

        if !self.tree.insert(path, node) {
            if self.is_below_unreadable(path) {
                return Ok(true);
            }
            // It was created during a gap, together with its parent, which must be read first.
            if let Some(parent) = parent(path) {
                self.mark(parent.into(), ReadKind::Data, first, first);
            }
            return Ok(false);
        }

        if old.is_none_or(|old| (old.czxid, old.mzxid) != (new.czxid, new.mzxid)) {
            self.touch(path.to_string());
        }
        if new.num_children > 0 && self.has_unknown_children(path, old, new, suspect) {
            self.check_listing(path, new)?;
            self.mark(path.clone(), ReadKind::List, arrival, arrival);
        }
        Ok(true)
    }

    fn touch(&mut self, path: String) {
        if let Some(touched) = &mut self.touched {
            touched.insert(path);
        }
    }

    fn has_unknown_children(
        &self,
        path: &str,
        old: Option<Stat>,
        new: Stat,
        suspect: bool,
    ) -> bool {
        if self.depth(path) >= self.scope.max_depth {
            return false;
        }
        match old {
            Some(old) if old.czxid == new.czxid => suspect && old.pzxid != new.pzxid,
            _ => self.told_from.is_none_or(|told_from| new.czxid <= told_from),
        }
    }

    fn list(&mut self, path: &str, names: &[String], arrival: Arrival) -> Result<(), CacheError> {
        if self.tree.get(path).is_none() || self.depth(path) >= self.scope.max_depth {
            return Ok(());
        }
        if names.len() > self.scope.max_nodes {
            return Err(self.too_many_nodes());
        }
        for name in names {
            let child = format!("{}/{name}", path.trim_end_matches('/'));
            if self.tree.get(&child).is_none() && self.is_chosen(&child) {
                self.mark(child.into(), ReadKind::Data, arrival, arrival);
            }
        }
        Ok(())
    }

    fn mark(&mut self, path: Arc<str>, question: ReadKind, first: Arrival, last: Arrival) {
        let read = Read { path, question };
        let Some(mut mark) = self.take_mark(&read) else {
            let mark = DirtyMark { first, last, in_flight: false, suspect: None, is_gone: false };
            return self.put_mark(read, mark);
        };

        (mark.first, mark.last) = (mark.first.min(first), mark.last.max(last));
        // While the node seemed to be gone, `next_read` may have skipped this read.
        if std::mem::take(&mut mark.is_gone) {
            self.ready.push_back(read.clone());
        }

        self.by_first.insert((mark.first, read.clone()));
        self.marks.insert(read, mark);
    }

    fn take_mark(&mut self, read: &Read) -> Option<DirtyMark> {
        let mark = self.marks.remove(read)?;
        self.by_first.remove(&(mark.first, read.clone()));
        Some(mark)
    }

    /// Records that a read is needed.
    fn put_mark(&mut self, read: Read, mark: DirtyMark) {
        self.by_first.insert((mark.first, read.clone()));
        self.ready.push_back(read.clone());
        self.marks.insert(read, mark);
    }

    fn depth(&self, path: &str) -> usize {
        self.tree.names(path).map_or(0, Iterator::count)
    }

    /// Whether the path and all its parents are included.
    fn is_wanted(&self, path: &str) -> bool {
        let depth = self.depth(path);
        let is_below = self.tree.names(path).is_some();
        let mut way = std::iter::successors(Some(path), |path| parent(path)).take(depth);
        is_below && depth <= self.scope.max_depth && way.all(|path| self.is_chosen(path))
    }

    fn is_chosen(&self, path: &str) -> bool {
        self.scope.filter.as_ref().is_none_or(|filter| filter(path))
    }

    // ----- bounds -----------------------------------------------------------------------------

    fn check_bounds(&self) -> Result<(), CacheError> {
        if self.tree.nodes() > self.scope.max_nodes {
            return Err(self.too_many_nodes());
        }
        if self.tree.bytes() > self.scope.max_bytes {
            let (path, max) = (self.scope.root.clone(), self.scope.max_bytes);
            return Err(CacheError::TooManyBytes { path, max });
        }
        Ok(())
    }

    fn too_many_nodes(&self) -> CacheError {
        CacheError::TooManyNodes { path: self.scope.root.clone(), max: self.scope.max_nodes }
    }

    /// Fails if the list of children cannot be read at all.
    fn check_listing(&self, path: &str, stat: Stat) -> Result<(), CacheError> {
        let children = usize::try_from(stat.num_children).unwrap_or(0);
        if children.saturating_mul(MIN_NAME_BYTES) > self.scope.max_frame {
            return Err(CacheError::TooManyChildren { path: path.to_owned(), children });
        }
        Ok(())
    }
}

fn parent(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 if path.len() == 1 => None,
        0 => Some("/"),
        end => Some(&path[..end]),
    }
}
