//! Watch events: which connections receive the event of a change.

use bytes::BytesMut;
use lockkeeper_wire::{
    EventKind, KeeperState, Permissions, Record as _, ReplyHeader, WatchEvent, Zxid, write_frame,
    xid,
};

use crate::acl::{self, AclRef};
use crate::nodes::parent_of;
use crate::output::{CloseReason, ConnectionId};
use crate::server::Server;
use crate::txn::{TreeEvent, TreeEventKind};

/// The capacity of the event buffer that is kept between events.
const KEPT_FRAME: usize = 4 * 1024;

impl Server {
    /// Sends the watch events of one transaction, before the reply that shows the change.
    pub(crate) fn notify(&mut self, zxid: Zxid, events: &[TreeEvent]) {
        self.outbox.begin_transaction(self.config.max_fan_out.min(self.event_room));
        for event in events {
            match &event.what {
                TreeEventKind::DataChanged => self.data_changed(zxid, event),
                TreeEventKind::Created(parent_acl) => self.created(zxid, event, parent_acl),
                TreeEventKind::Deleted(parent_acl) => self.deleted(zxid, event, parent_acl),
            }
        }
    }

    fn data_changed(&mut self, zxid: Zxid, event: &TreeEvent) {
        let recipients = self.watches.take_data(&event.path);
        self.tell(recipients, zxid, EventKind::NodeDataChanged, &event.path, &event.acl);
    }

    fn created(&mut self, zxid: Zxid, event: &TreeEvent, parent_acl: &AclRef) {
        let recipients = self.watches.take_data(&event.path);
        self.tell(recipients, zxid, EventKind::NodeCreated, &event.path, &event.acl);
        self.children_changed(zxid, parent_of(&event.path), parent_acl);
    }

    /// A client that watches both data and children of a deleted node gets one event.
    fn deleted(&mut self, zxid: Zxid, event: &TreeEvent, parent_acl: &AclRef) {
        let mut recipients = self.watches.take_data(&event.path);
        recipients.extend(self.watches.take_child(&event.path));
        self.tell(recipients, zxid, EventKind::NodeDeleted, &event.path, &event.acl);
        self.children_changed(zxid, parent_of(&event.path), parent_acl);
    }

    fn children_changed(&mut self, zxid: Zxid, parent: &str, parent_acl: &AclRef) {
        let recipients = self.watches.take_child(parent);
        self.tell(recipients, zxid, EventKind::NodeChildrenChanged, parent, parent_acl);
    }

    /// Sends one event to each recipient that may read the node, once to each. One-shot watches of the others
    /// are used up too. A connection that exceeds its share of the transaction is closed.
    fn tell(
        &mut self,
        mut recipients: Vec<ConnectionId>,
        zxid: Zxid,
        kind: EventKind,
        path: &str,
        acl: &AclRef,
    ) {
        if recipients.is_empty() {
            return;
        }
        recipients.sort_unstable();

        let mut frame = std::mem::take(&mut self.event_frame);
        write_frame(&mut frame, |out| encode_event(zxid, kind, path, out));
        for watches in recipients.chunk_by(|one, next| one == next) {
            let recipient = watches[0];
            // Watches of closed connections may not have been removed yet.
            let Some(connection) = self.connections.get(&recipient) else { continue };
            let is_seen = acl::check(acl, Permissions::READ, &connection.identities).is_ok();
            // An event that a client may not see still costs processing time.
            let content = if is_seen { &frame[..] } else { &[] };
            if self.outbox.event(recipient, content, watches.len()).is_err() {
                // Done first: thousands of watches must not be removed in one step.
                self.watches.abandon(recipient);
                self.close(recipient, CloseReason::TooManyEvents);
            }
        }

        frame.clear();
        if frame.capacity() <= KEPT_FRAME {
            self.event_frame = frame;
        }
    }
}

/// Encodes the content of an event frame.
pub(crate) fn encode_event(zxid: Zxid, kind: EventKind, path: &str, out: &mut BytesMut) {
    ReplyHeader { xid: xid::NOTIFICATION, zxid, error: 0 }.encode(out);
    WatchEvent { kind, state: KeeperState::SyncConnected, path: path.to_owned() }.encode(out);
}
