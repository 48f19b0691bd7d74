//! Watch events: which connections hear of a change, and which may.

use lockkeeper_wire::{
    EventKind, KeeperState, Permissions, Record as _, ReplyHeader, WatchEvent, Zxid, xid,
};

use crate::acl::{self, AclRef};
use crate::nodes::parent_of;
use crate::output::ConnectionId;
use crate::server::Server;
use crate::txn::{TreeEvent, TreeEventKind};

impl Server {
    /// Sends what watches have to hear, before the reply that shows the change.
    pub(crate) fn notify(&mut self, zxid: Zxid, events: &[TreeEvent]) {
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
        self.tell(&recipients, zxid, EventKind::NodeDataChanged, &event.path, &event.acl);
    }

    fn created(&mut self, zxid: Zxid, event: &TreeEvent, parent_acl: &AclRef) {
        let recipients = self.watches.take_data(&event.path);
        self.tell(&recipients, zxid, EventKind::NodeCreated, &event.path, &event.acl);
        self.children_changed(zxid, parent_of(&event.path), parent_acl);
    }

    /// Whoever watches both data and children of a deleted node hears of it once.
    fn deleted(&mut self, zxid: Zxid, event: &TreeEvent, parent_acl: &AclRef) {
        let mut recipients = self.watches.take_data(&event.path);
        recipients.extend(self.watches.take_child(&event.path));
        recipients.sort_unstable();
        recipients.dedup();
        self.tell(&recipients, zxid, EventKind::NodeDeleted, &event.path, &event.acl);
        self.children_changed(zxid, parent_of(&event.path), parent_acl);
    }

    fn children_changed(&mut self, zxid: Zxid, parent: &str, parent_acl: &AclRef) {
        let recipients = self.watches.take_child(parent);
        self.tell(&recipients, zxid, EventKind::NodeChildrenChanged, parent, parent_acl);
    }

    /// Sends one event to those that may read the node. A one-shot watch of the others is used up all the
    /// same.
    pub(crate) fn tell(
        &mut self,
        recipients: &[ConnectionId],
        zxid: Zxid,
        kind: EventKind,
        path: &str,
        acl: &AclRef,
    ) {
        if recipients.is_empty() {
            return;
        }

        let header = ReplyHeader { xid: xid::NOTIFICATION, zxid, error: 0 };
        let event = WatchEvent { kind, state: KeeperState::SyncConnected, path: path.to_owned() };

        for recipient in recipients {
            // Some watches of those that are gone are still to be forgotten.
            let Some(connection) = self.connections.get(recipient) else { continue };
            if acl::check(acl, Permissions::READ, &connection.identities).is_ok() {
                self.outbox.frame(*recipient, |out| {
                    header.encode(out);
                    event.encode(out);
                });
            }
        }
    }
}
