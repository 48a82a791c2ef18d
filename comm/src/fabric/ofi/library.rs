//! Finding libfabric on this machine, when it is first asked for.
//!
//! It is never unloaded: its providers have threads that would go on running.

use super::sys::{self, FiFabricAttr, FiInfo, FidFabric};
use crate::error::{Error, Result};
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Where libfabric is, if the loader does not find it or should take another one.
pub(crate) const LIBRARY_VARIABLE: &str = "STREAMHALO_LIBFABRIC";
/// What the loader is asked for otherwise.
const LIBRARY: &str = "libfabric.so.1";

type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const FiInfo, *mut *mut FiInfo) -> c_int;
type OpenFabric = unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;

/// The loaded library: the functions that are not in the table of an object.
#[derive(Debug)]
pub(crate) struct Library {
    version: u32,
    get_info: GetInfo,
    duplicate_info: unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo,
    free_info: unsafe extern "C" fn(*mut FiInfo),
    open_fabric: OpenFabric,
    describe: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// `fabric ofi` cannot be used, for that reason.
pub(crate) fn unavailable(reason: impl Into<String>) -> Error {
    Error::FabricUnavailable { name: "ofi".into(), reason: reason.into() }
}

impl Library {
    /// The library of this process, loaded on the first call.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`]; later calls give the same.
    pub(crate) fn load() -> Result<&'static Library> {
        static LOADED: OnceLock<Result<Library>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| Library::open(std::env::var_os(LIBRARY_VARIABLE)));
        loaded.as_ref().map_err(Error::clone)
    }

    /// Loads the library of that path, or the one that the loader finds.
    fn open(path: Option<OsString>) -> Result<Library> {
        let asked = path.as_deref().unwrap_or(OsStr::new(LIBRARY));
        let shown = asked.display();
        // SAFETY: libfabric's initialisation has no conditions; what else the user names in the
        // variable is on the user.
        let handle = unsafe { libloading::Library::new(asked) }.map_err(|error| {
            let remedy = match &path {
                Some(_) => format!("{LIBRARY_VARIABLE} must name libfabric's shared library"),
                None => format!(
                    "install libfabric (Debian: `apt install libfabric1`; on Slingshot: `module load libfabric`) \
                     or give its path in {LIBRARY_VARIABLE}"
                ),
            };
            unavailable(format!("`{shown}` could not be loaded ({error}); {remedy}"))
        })?;
        // Kept for ever, whether or not it turns out to be usable.
        let handle: &'static libloading::Library = Box::leak(Box::new(handle));

        // SAFETY: the type is that of the function's declaration.
        let version = unsafe { symbol::<unsafe extern "C" fn() -> u32>(handle, "fi_version", asked) }?;
        // SAFETY: it takes nothing and only returns a number.
        let version = unsafe { version() };
        if version < sys::OLDEST {
            return Err(unavailable(format!(
                "`{shown}` is libfabric {}, and at least {} is needed; give the path of a newer one in {LIBRARY_VARIABLE}",
                written(version),
                written(sys::OLDEST)
            )));
        }
        Ok(Library {
            version,
            // SAFETY: as above.
            get_info: unsafe { symbol(handle, "fi_getinfo", asked) }?,
            // SAFETY: as above.
            duplicate_info: unsafe { symbol(handle, "fi_dupinfo", asked) }?,
            // SAFETY: as above.
            free_info: unsafe { symbol(handle, "fi_freeinfo", asked) }?,
            // SAFETY: as above.
            open_fabric: unsafe { symbol(handle, "fi_fabric", asked) }?,
            // SAFETY: as above.
            describe: unsafe { symbol(handle, "fi_strerror", asked) }?,
        })
    }

    /// The library's version, as `1.17`.
    pub(crate) fn version(&self) -> String {
        written(self.version)
    }

    /// The version of the interface that is asked for: ours, or an older library's own.
    fn interface(&self) -> u32 {
        self.version.min(sys::INTERFACE)
    }

    /// What an error number means.
    pub(crate) fn describe(&self, number: i32) -> String {
        // SAFETY: any number may be asked for.
        text(unsafe { (self.describe)(number) }).unwrap_or_else(|| "unknown".into())
    }

    /// A new `fi_info` whose parts all exist and are empty: in memory of the library, which may
    /// have longer structures than ours and reads them whole.
    pub(crate) fn hints(&'static self) -> Result<Hints> {
        // SAFETY: without an original an empty one is made.
        let info = unsafe { (self.duplicate_info)(std::ptr::null()) };
        if info.is_null() {
            return Err(unavailable("libfabric has no memory left for an `fi_info`"));
        }
        Ok(Hints { library: self, info, provider: None })
    }

    /// What fits the hints, best first; empty if nothing does. `source` is this side's address.
    pub(crate) fn offers(&'static self, hints: &Hints, source: Option<&str>) -> Result<Offers> {
        let source =
            source.map(|node| CString::new(node).map_err(|_| unavailable("an address with a zero byte")));
        let source = source.transpose()?;
        let (node, flags) = match &source {
            Some(node) => (node.as_ptr(), sys::FI_SOURCE),
            None => (std::ptr::null(), 0),
        };
        let mut first = std::ptr::null_mut();
        // SAFETY: the hints are the library's own structure, the names end in zero, and all outlive
        // the call.
        let code = unsafe {
            (self.get_info)(self.interface(), node, std::ptr::null(), flags, hints.info, &mut first)
        };
        match code {
            0 => {}
            code if code == -sys::FI_ENODATA => first = std::ptr::null_mut(),
            code => {
                return Err(super::call::failed(self, "fi_getinfo", code.into(), "for what can be had here"));
            }
        }
        Ok(Offers { library: self, first })
    }

    /// Opens the fabric of an offer.
    pub(crate) fn open_fabric(&self, attributes: *mut FiFabricAttr) -> Result<*mut FidFabric> {
        let mut fabric = std::ptr::null_mut();
        // SAFETY: the attributes are those of an offer that the caller keeps.
        let code = unsafe { (self.open_fabric)(attributes, &mut fabric, std::ptr::null_mut()) };
        super::call::check(self, "fi_fabric", code, "when opening the fabric")?;
        Ok(fabric)
    }

    /// A copy of one offer, without those after it.
    pub(crate) fn copy(&'static self, offer: &FiInfo) -> Result<Offers> {
        // SAFETY: the offer is a live structure of the library.
        let first = unsafe { (self.duplicate_info)(offer) };
        if first.is_null() {
            return Err(unavailable("libfabric has no memory left for an `fi_info`"));
        }
        Ok(Offers { library: self, first })
    }
}

/// A function of the library.
///
/// # Safety
/// `T` must be the type of that function.
unsafe fn symbol<T: Copy>(library: &'static libloading::Library, name: &str, asked: &OsStr) -> Result<T> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { library.get::<T>(name) };
    found.map(|function| *function).map_err(|_| {
        unavailable(format!(
            "`{}` has no function `{name}`, so it is not libfabric; give libfabric's path in {LIBRARY_VARIABLE}",
            asked.display()
        ))
    })
}

/// A version number as people write it.
pub(crate) fn written(version: u32) -> String {
    format!("{}.{}", version >> 16, version & 0xffff)
}

/// A C string, unless there is none.
pub(crate) fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: libfabric's strings end in zero, and its callers keep what holds them.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// What is asked of `fi_getinfo`.
#[derive(Debug)]
pub(crate) struct Hints {
    library: &'static Library,
    info: *mut FiInfo,
    provider: Option<CString>,
}

impl Hints {
    /// The structure, to be filled in.
    pub(crate) fn info(&mut self) -> &mut FiInfo {
        // SAFETY: it is ours alone until dropped.
        unsafe { &mut *self.info }
    }

    /// Asks for one provider.
    pub(crate) fn set_provider(&mut self, name: &str) -> Result<()> {
        let name = CString::new(name).map_err(|_| unavailable("a provider's name with a zero byte"))?;
        let attributes = self.info().fabric_attr;
        // SAFETY: `fi_dupinfo` made all parts.
        unsafe { (*attributes).prov_name = name.as_ptr().cast_mut() };
        self.provider = Some(name);
        Ok(())
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        let attributes = self.info().fabric_attr;
        // SAFETY: as above. The name is not the library's, which would free it.
        unsafe { (*attributes).prov_name = std::ptr::null_mut() };
        // SAFETY: it came from `fi_dupinfo` and is not used again.
        unsafe { (self.library.free_info)(self.info) };
    }
}

/// A list of endpoints that can be had.
#[derive(Debug)]
pub(crate) struct Offers {
    library: &'static Library,
    first: *mut FiInfo,
}

// SAFETY: the list is memory that any thread may read; it is only changed through `first`, by
// whoever owns it.
unsafe impl Send for Offers {}
// SAFETY: as above.
unsafe impl Sync for Offers {}

impl Offers {
    /// The offers in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FiInfo> {
        // SAFETY: the library's list stays as it is until `self` is dropped.
        let first = unsafe { self.first.as_ref() };
        // SAFETY: as above.
        std::iter::successors(first, |offer| unsafe { offer.next.as_ref() })
    }

    /// The first offer, for calls that take it.
    pub(crate) fn first(&self) -> *mut FiInfo {
        self.first
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: it came from the library and is not used again.
            unsafe { (self.library.free_info)(self.first) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(path: &str) -> String {
        match Library::open(Some(path.into())) {
            Err(Error::FabricUnavailable { name, reason }) if name == "ofi" => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_missing_library_is_named_with_the_remedy() {
        let reason = reason("/nowhere/libfabric.so.1");
        assert!(reason.contains("/nowhere/libfabric.so.1"), "{reason}");
        assert!(reason.contains(LIBRARY_VARIABLE), "{reason}");
    }

    #[test]
    fn another_library_is_not_taken_for_libfabric() {
        let reason = reason("libc.so.6");
        assert!(reason.contains("no function `fi_version`"), "{reason}");
    }

    #[test]
    fn versions_are_written_with_a_dot() {
        assert_eq!(written(sys::INTERFACE), "1.17");
        assert_eq!(written(sys::version(2, 5)), "2.5");
    }
}
