//! An endpoint and all that it stands on: fabric, domain, address vector and completion queue.

use super::call::{check, failed, function};
use super::choice::chosen;
use super::completion::Token;
use super::library::{Library, Offers};
use super::provider::Offer;
use super::sys::{self, Fid, FidAv, FidCq, FidDomain, FidEp, FidFabric, Zeroed};
use super::turns::Turns;
use crate::error::Result;
use crate::locks::lock;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// Completions that wait to be polled, at most.
const COMPLETIONS: usize = 4096;
/// The first key that is asked for where providers let their users choose. On Slingshot the low
/// ones are of another kind, which cannot be counted.
const FIRST_KEY: u64 = 4096;

/// What endpoint is wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointOptions {
    /// The provider's name; otherwise the best one that can leave the machine.
    pub(crate) provider: Option<String>,
    /// The interface's name; otherwise one of those that are as good.
    pub(crate) domain: Option<String>,
    /// How many ranks of this machine come before this one, and how many there are: they share out the interfaces.
    pub(crate) share: (usize, usize),
    /// An address of this machine, which chooses the interface.
    pub(crate) source: Option<String>,
    /// Whether operations are to wait for counters.
    pub(crate) needs_triggered: bool,
    /// Whether memory of GPUs is to be registered.
    pub(crate) needs_hmem: bool,
}

/// A peer, as this endpoint knows it: its place in the order in which peers were inserted, which is that of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PeerAddress(pub(crate) u64);

impl PeerAddress {
    /// Of a receive for whoever sends, in errors.
    pub(crate) const ANYBODY: Self = Self(0x7fff_ffff);
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANYBODY { write!(f, "any rank") } else { write!(f, "rank {}", self.0) }
    }
}

/// Where messages go out and come in. Cloning is cheap; what is opened on it keeps it open.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) library: &'static Library,
    pub(super) offer: Offer,
    offers: Offers,
    // Null until opened; closed in this order.
    pub(super) endpoint: *mut FidEp,
    pub(super) queue: *mut FidCq,
    peers: *mut FidAv,
    pub(super) domain: *mut FidDomain,
    fabric: *mut FidFabric,
    address: Vec<u8>,
    next_key: AtomicU64,
    /// What the entries of the queue of deferred work are for, by the address of their context:
    /// they complete into counters, but fail into the completion queue.
    deferred: Mutex<HashMap<usize, String>>,
    /// How many receives were asked to end and have not said so yet: several may have one token.
    cancelled: Mutex<HashMap<Token, usize>>,
    /// Of threads that post receives and that poll.
    pub(super) turns: Turns,
}

// SAFETY: the objects are opened as thread-safe, and the pointers never change once open.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Endpoint {
    /// Opens an endpoint that can send and receive.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`](crate::Error::FabricUnavailable) if there is no such provider
    /// here, or it cannot do what is needed; [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) fn open(options: &EndpointOptions) -> Result<Endpoint> {
        let library = Library::load()?;
        let offers = chosen(library, options)?;
        // SAFETY: `chosen` returns exactly one offer, which lives as long as `offers`.
        let offer = Offer::of(unsafe { &*offers.first() });
        let mut inner = Inner {
            library,
            turns: Turns::of(&offer.provider),
            offer,
            offers,
            endpoint: null_mut(),
            queue: null_mut(),
            peers: null_mut(),
            domain: null_mut(),
            fabric: null_mut(),
            address: Vec::new(),
            next_key: AtomicU64::new(FIRST_KEY),
            deferred: Mutex::default(),
            cancelled: Mutex::default(),
        };
        inner.open_parts()?;
        inner.address = inner.name()?;
        Ok(Endpoint { inner: Arc::new(inner) })
    }

    /// What peers insert to reach this endpoint.
    pub(crate) fn address(&self) -> Vec<u8> {
        self.inner.address.clone()
    }

    /// Makes the endpoint of that address a peer. Peers are inserted in the order of ranks, by which errors name them,
    /// and this endpoint is one: operations on memory of its own go through the network interface like all others.
    ///
    /// # Errors
    /// [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) fn insert(&self, address: &[u8]) -> Result<PeerAddress> {
        self.inner.insert(address)
    }

    /// The provider's name.
    pub(crate) fn provider(&self) -> &str {
        &self.inner.offer.provider
    }

    /// The network and the interface, as `fabric/domain`.
    pub(crate) fn domain(&self) -> &str {
        &self.inner.offer.domain
    }

    /// Whether operations can wait for counters.
    pub(crate) fn has_triggered(&self) -> bool {
        let needed = sys::FI_TRIGGER | sys::FI_RMA_EVENT;
        self.inner.offer.caps & needed == needed
    }

    /// Whether memory of GPUs can be registered. What its vendor's library can do here is another question.
    pub(crate) fn has_hmem(&self) -> bool {
        self.inner.has_hmem()
    }

    /// The longest message, in bytes.
    pub(crate) fn longest_message(&self) -> usize {
        self.inner.offer.longest_message
    }

    /// The bytes of data that can come with the completion of a write at its target.
    pub(crate) fn remote_data_bytes(&self) -> usize {
        self.inner.offer.remote_data_bytes
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} on {})", self.provider(), self.domain())
    }
}

/// An address for the provider `shm`. By itself it takes one of the process's number, under which a former process may have left
/// its memory when it was killed: whose owner would seem to be alive.
fn unique_name() -> CString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    CString::new(format!("fi_shm://streamhalo-{process}-{since:x}-{count}")).expect("it has no zero")
}

impl Inner {
    fn open_parts(&mut self) -> Result<()> {
        let library = self.library;
        let info = self.offers.first();
        // SAFETY: the offer has all its parts.
        self.fabric = library.open_fabric(unsafe { (*info).fabric_attr })?;

        // SAFETY: just opened.
        let table = unsafe { (*self.fabric).ops };
        let open = function!("fi_domain", table, sys::FiOpsFabric, domain)?;
        // SAFETY: of the fabric that the offer is of.
        let code = unsafe { open(self.fabric, info, &mut self.domain, null_mut()) };
        check(library, "fi_domain", code, "when opening the domain")?;

        // SAFETY: just opened.
        let table = unsafe { (*self.domain).ops };
        let mut attributes = sys::FiAvAttr { r#type: sys::FI_AV_TABLE, ..Zeroed::zeroed() };
        let open = function!("fi_av_open", table, sys::FiOpsDomain, av_open)?;
        // SAFETY: of an open domain, with attributes that outlive the call.
        let code = unsafe { open(self.domain, &mut attributes, &mut self.peers, null_mut()) };
        check(library, "fi_av_open", code, "when making the list of peers")?;

        let mut attributes = sys::FiCqAttr {
            size: COMPLETIONS,
            format: sys::FI_CQ_FORMAT_TAGGED,
            wait_obj: sys::FI_WAIT_NONE,
            ..Zeroed::zeroed()
        };
        let open = function!("fi_cq_open", table, sys::FiOpsDomain, cq_open)?;
        // SAFETY: as above.
        let code = unsafe { open(self.domain, &mut attributes, &mut self.queue, null_mut()) };
        check(library, "fi_cq_open", code, "when making the completion queue")?;

        let open = function!("fi_endpoint", table, sys::FiOpsDomain, endpoint)?;
        // SAFETY: as above.
        let code = unsafe { open(self.domain, info, &mut self.endpoint, null_mut()) };
        check(library, "fi_endpoint", code, "when making the endpoint")?;
        bind(library, self.endpoint.cast(), self.peers.cast(), 0)?;
        bind(library, self.endpoint.cast(), self.queue.cast(), sys::FI_SEND | sys::FI_RECV)?;
        if self.offer.provider == "shm" {
            self.set_name(&unique_name())?;
        }
        control(library, self.endpoint.cast(), sys::FI_ENABLE, null_mut())
            .and_then(|code| check(library, "fi_enable", code, "for the endpoint"))
    }

    /// Chooses the endpoint's address, before it is enabled.
    fn set_name(&self, name: &CStr) -> Result<()> {
        // SAFETY: an open endpoint.
        let table = unsafe { (*self.endpoint).cm };
        let set = function!("fi_setname", table, sys::FiOpsCm, setname)?;
        let bytes = name.to_bytes_with_nul();
        // SAFETY: the provider copies so many bytes, which end with a zero.
        let code = unsafe { set(self.endpoint.cast(), bytes.as_ptr().cast_mut().cast(), bytes.len()) };
        check(self.library, "fi_setname", code, "for this endpoint's own address")
    }

    /// The endpoint's own address.
    fn name(&self) -> Result<Vec<u8>> {
        // SAFETY: an open endpoint.
        let table = unsafe { (*self.endpoint).cm };
        let name = function!("fi_getname", table, sys::FiOpsCm, getname)?;
        let mut address = vec![0u8; 256];
        let mut bytes = address.len();
        let endpoint: *mut Fid = self.endpoint.cast();
        // SAFETY: the vector has that many bytes.
        let mut code = unsafe { name(endpoint, address.as_mut_ptr().cast(), &mut bytes) };
        if code == -sys::FI_ETOOSMALL {
            address.resize(bytes, 0);
            // SAFETY: as above.
            code = unsafe { name(endpoint, address.as_mut_ptr().cast(), &mut bytes) };
        }
        check(self.library, "fi_getname", code, "for this endpoint's own address")?;
        address.truncate(bytes);
        Ok(address)
    }

    fn insert(&self, address: &[u8]) -> Result<PeerAddress> {
        // SAFETY: open until dropped.
        let table = unsafe { (*self.peers).ops };
        let insert = function!("fi_av_insert", table, sys::FiOpsAv, insert)?;
        let mut peer = 0;
        // Providers read a whole address of their own kind, however short a damaged one may be.
        let mut padded = address.to_vec();
        padded.resize(address.len().max(256), 0);
        // SAFETY: one address, longer than that of any provider.
        let count = unsafe { insert(self.peers, padded.as_ptr().cast(), 1, &mut peer, 0, null_mut()) };
        if count != 1 {
            let code = if count < 0 { count.into() } else { -22 };
            return Err(failed(self.library, "fi_av_insert", code, "for the address of a peer"));
        }
        Ok(PeerAddress(peer))
    }

    /// The key to ask for when registering memory, if the provider takes suggestions.
    pub(super) fn next_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn wants(&self, mr_mode: i32) -> bool {
        self.offer.mr_mode & mr_mode != 0
    }

    pub(super) fn has_hmem(&self) -> bool {
        self.offer.caps & sys::FI_HMEM != 0
    }

    pub(super) fn deferred(&self) -> MutexGuard<'_, HashMap<usize, String>> {
        lock(&self.deferred)
    }

    /// Notes that a receive is asked to end.
    pub(super) fn note_cancelled(&self, token: Token) {
        *lock(&self.cancelled).entry(token).or_default() += 1;
    }

    /// Whether a receive was asked to end that has not said so before.
    pub(super) fn take_cancelled(&self, token: Token) -> bool {
        let mut cancelled = lock(&self.cancelled);
        let Some(count) = cancelled.get_mut(&token) else { return false };
        *count -= 1;
        if *count == 0 {
            cancelled.remove(&token);
        }
        true
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let parts: [*mut Fid; 5] = [
            self.endpoint.cast(),
            self.queue.cast(),
            self.peers.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        parts.into_iter().for_each(close);
    }
}

/// Lets an object be bound to another.
pub(super) fn bind(library: &Library, object: *mut Fid, to: *mut Fid, flags: u64) -> Result<()> {
    // SAFETY: callers pass open objects.
    let table = unsafe { (*object).ops };
    let bind = function!("fi_bind", table, sys::FiOps, bind)?;
    // SAFETY: as above; both outlive their binding, which those that own them see to.
    let code = unsafe { bind(object, to, flags) };
    check(library, "fi_bind", code, "when binding one object to another")
}

/// Passes a command to an object, and returns what it returns.
pub(super) fn control(_: &Library, object: *mut Fid, command: i32, argument: *mut c_void) -> Result<i32> {
    // SAFETY: callers pass an open object.
    let table = unsafe { (*object).ops };
    let control = function!("fi_control", table, sys::FiOps, control)?;
    // SAFETY: the argument is what the command takes, and lives as long as it says.
    Ok(unsafe { control(object, command, argument) })
}

/// Closes an object, if it was opened. What still uses it keeps its owner alive, so a refusal would
/// be a defect of the provider, and leaks the object.
pub(super) fn close(object: *mut Fid) {
    if object.is_null() {
        return;
    }
    // SAFETY: open until now.
    let table = unsafe { (*object).ops };
    if let Ok(close) = function!("fi_close", table, sys::FiOps, close) {
        // SAFETY: callers do not use it again.
        unsafe { close(object) };
    }
}
