//! The functions of an MPI library: one table of pointers, and a checked call for each.

use super::abi::{Abi, Handle, lacks};
use crate::error::{Error, Result};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

thread_local! {
    /// What the error handler was last told in this thread, or 0.
    static RECORDED: Cell<c_int> = const { Cell::new(0) };
}

/// The error handler of every communicator and window of ours. It notes the code: some libraries
/// return success after they have called a handler, so that the returned value alone tells nothing.
///
/// A library calls it with further arguments, which may be ignored where it is not told how many there are.
extern "C" fn record(_object: *mut c_void, code: *mut c_int) {
    if code.is_null() {
        return;
    }
    // SAFETY: the standard has the library pass the address of the error code.
    RECORDED.set(unsafe { code.read() });
}

/// An error handler, as a library takes it.
pub(crate) type ErrorHandler = extern "C" fn(*mut c_void, *mut c_int);
/// Ours.
pub(crate) const RECORD: ErrorHandler = record;

/// Makes the table, and a method of the same name for each of its functions.
macro_rules! functions {
    ($($(#[$attribute:meta])? $field:ident = $name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The functions that the fabric uses. Handles are passed as [`Handle`]s.
        pub(crate) struct Table {
            /// Whether error classes are numbered as in the standard ABI.
            standard_classes: bool,
            $($field: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Table {
            /// Looks every function up.
            ///
            /// # Safety
            /// `symbol` must give the functions of an MPI library.
            ///
            /// # Errors
            /// [`Error::FabricUnavailable`] that names the function that is missing.
            pub(crate) unsafe fn load(abi: Abi, symbol: impl Fn(&CStr) -> Option<*const c_void>) -> Result<Self> {
                Ok(Self {
                    standard_classes: abi == Abi::Standard,
                    $($field: {
                        const NAME: &CStr = name(concat!(stringify!($name), "\0"));
                        let address = symbol(NAME).ok_or_else(|| lacks(NAME))?;
                        // SAFETY: the address is that of the function of this name, by the caller, and its
                        // type is the standard's, with handles widened to a register.
                        unsafe {
                            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(address)
                        }
                    },)*
                })
            }

            $(
                /// The function of this name in the standard, with its result checked.
                ///
                /// # Safety
                /// As the standard says: handles are valid, pointers are good for what the call does with
                /// them, and MPI is in a state in which it may be called.
                $(#[$attribute])?
                #[inline]
                #[allow(clippy::too_many_arguments)] // the standard's
                pub(crate) unsafe fn $field(&self, $($argument: $type),*) -> Result<()> {
                    // What the application's own calls have left is not this one's.
                    RECORDED.set(0);
                    // SAFETY: passed on to the caller.
                    let code = unsafe { (self.$field)($($argument),*) };
                    self.check(stringify!($name), code)
                }
            )*
        }

        /// The function of that name that this program is linked with.
        #[cfg(feature = "mpi")]
        pub(crate) fn linked(name: &CStr) -> Option<*const c_void> {
            // The addresses of functions, whatever types the library's header gives their handles.
            $(if name.to_bytes() == stringify!($name).as_bytes() {
                return Some(::mpi::ffi::$name as *const c_void);
            })*
            None
        }

        /// The names of all functions that are needed.
        pub(crate) const NAMES: &[&CStr] = &[$(name(concat!(stringify!($name), "\0"))),*];
    };
}

const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends in one zero byte"),
    }
}

functions! {
    init_thread = MPI_Init_thread(argc: *mut c_int, argv: *mut c_void, required: c_int, provided: *mut c_int);
    finalize = MPI_Finalize();
    initialized = MPI_Initialized(flag: *mut c_int);
    finalized = MPI_Finalized(flag: *mut c_int);
    query_thread = MPI_Query_thread(provided: *mut c_int);
    is_thread_main = MPI_Is_thread_main(flag: *mut c_int);
    abort = MPI_Abort(comm: Handle, code: c_int);
    get_version = MPI_Get_version(version: *mut c_int, subversion: *mut c_int);
    get_library_version = MPI_Get_library_version(text: *mut c_char, length: *mut c_int);
    #[expect(dead_code, reason = "asked for past the check, whose errors are its texts")]
    error_string = MPI_Error_string(code: c_int, text: *mut c_char, length: *mut c_int);

    comm_create_errhandler = MPI_Comm_create_errhandler(function: ErrorHandler, handler: *mut Handle);
    comm_set_errhandler = MPI_Comm_set_errhandler(comm: Handle, handler: Handle);
    win_create_errhandler = MPI_Win_create_errhandler(function: ErrorHandler, handler: *mut Handle);
    win_set_errhandler = MPI_Win_set_errhandler(window: Handle, handler: Handle);

    comm_rank = MPI_Comm_rank(comm: Handle, rank: *mut c_int);
    comm_size = MPI_Comm_size(comm: Handle, size: *mut c_int);
    comm_dup = MPI_Comm_dup(comm: Handle, new: *mut Handle);
    comm_free = MPI_Comm_free(comm: *mut Handle);
    comm_create_group = MPI_Comm_create_group(comm: Handle, group: Handle, tag: c_int, new: *mut Handle);
    comm_get_attr = MPI_Comm_get_attr(comm: Handle, key: c_int, value: *mut c_void, flag: *mut c_int);
    comm_group = MPI_Comm_group(comm: Handle, group: *mut Handle);
    group_incl = MPI_Group_incl(group: Handle, count: c_int, ranks: *const c_int, new: *mut Handle);
    group_free = MPI_Group_free(group: *mut Handle);

    iprobe = MPI_Iprobe(source: c_int, tag: c_int, comm: Handle, flag: *mut c_int, status: *mut c_void);
    get_count = MPI_Get_count(status: *const c_void, datatype: Handle, count: *mut c_int);
    isend = MPI_Isend(data: *const c_void, count: c_int, datatype: Handle, to: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    irecv = MPI_Irecv(data: *mut c_void, count: c_int, datatype: Handle, from: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    ibcast = MPI_Ibcast(data: *mut c_void, count: c_int, datatype: Handle, root: c_int, comm: Handle, request: *mut Handle);
    ialltoall = MPI_Ialltoall(sent: *const c_void, count: c_int, datatype: Handle, received: *mut c_void, received_count: c_int, received_datatype: Handle, comm: Handle, request: *mut Handle);

    send_init = MPI_Send_init(data: *const c_void, count: c_int, datatype: Handle, to: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    rsend_init = MPI_Rsend_init(data: *const c_void, count: c_int, datatype: Handle, to: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    recv_init = MPI_Recv_init(data: *mut c_void, count: c_int, datatype: Handle, from: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    start = MPI_Start(request: *mut c_void);
    start_all = MPI_Startall(count: c_int, requests: *mut c_void);
    test = MPI_Test(request: *mut c_void, flag: *mut c_int, status: *mut c_void);
    test_some = MPI_Testsome(count: c_int, requests: *mut c_void, completed: *mut c_int, indices: *mut c_int, statuses: *mut c_void);
    cancel = MPI_Cancel(request: *mut c_void);
    request_free = MPI_Request_free(request: *mut c_void);

    win_create = MPI_Win_create(base: *mut c_void, bytes: isize, unit: c_int, info: Handle, comm: Handle, window: *mut Handle);
    win_free = MPI_Win_free(window: *mut Handle);
    win_post = MPI_Win_post(group: Handle, assertion: c_int, window: Handle);
    win_start = MPI_Win_start(group: Handle, assertion: c_int, window: Handle);
    put = MPI_Put(data: *const c_void, count: c_int, datatype: Handle, target: c_int, offset: isize, target_count: c_int, target_datatype: Handle, window: Handle);
    win_complete = MPI_Win_complete(window: Handle);
    win_test = MPI_Win_test(window: Handle, flag: *mut c_int);
}

impl Table {
    /// Makes an error of what a call returned, or of what the error handler was told during it.
    #[inline]
    fn check(&self, call: &'static str, returned: c_int) -> Result<()> {
        let recorded = RECORDED.replace(0);
        if returned == 0 && recorded == 0 {
            return Ok(());
        }
        Err(self.failure(call, if recorded == 0 { returned } else { recorded }))
    }

    #[cold]
    fn failure(&self, call: &'static str, code: c_int) -> Error {
        Error::Mpi { call, reason: self.text(code) }
    }

    /// An error code, with the library's text for it.
    pub(crate) fn text(&self, code: c_int) -> String {
        // MPICH 5.0 and Intel MPI take a bare class of the standard ABI for the class of their own that has its
        // number, and give the text of another error.
        let class = usize::try_from(code).ok().and_then(|class| STANDARD_CLASSES.get(class));
        if let (true, Some(name)) = (self.standard_classes, class) {
            return format!("error {code}: MPI_ERR_{name}");
        }
        let mut text = [0u8; TEXT_BYTES];
        let mut length = 0;
        // SAFETY: the text is longer than any library's `MPI_MAX_ERROR_STRING`. Called past the check, which
        // would ask for the text of an error in asking for a text.
        let failed = unsafe { (self.error_string)(code, text.as_mut_ptr().cast(), &raw mut length) };
        RECORDED.set(0);
        match CStr::from_bytes_until_nul(&text) {
            Ok(text) if failed == 0 && !text.is_empty() => {
                format!("error {code}: {}", text.to_string_lossy().trim())
            }
            _ => format!("error {code}, for which the library has no text"),
        }
    }

    /// The library's own name and version. May be asked before MPI is initialised.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn library_version(&self) -> Result<String> {
        let mut text = [0u8; TEXT_BYTES];
        let mut length = 0;
        // SAFETY: the text is as long as the longest `MPI_MAX_LIBRARY_VERSION_STRING`; the call is allowed at any time.
        unsafe { self.get_library_version(text.as_mut_ptr().cast(), &raw mut length) }?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(text.to_string_lossy().trim().to_owned())
    }

    /// The version of the standard that the library implements. May be asked before MPI is initialised.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn version(&self) -> Result<(i32, i32)> {
        let (mut version, mut subversion) = (0, 0);
        // SAFETY: both places live through the call, which is allowed at any time.
        unsafe { self.get_version(&raw mut version, &raw mut subversion) }?;
        Ok((version, subversion))
    }
}

/// The error classes of the standard ABI, MPI 5.0, by their numbers: those of the calls that are used here.
const STANDARD_CLASSES: [&str; 20] = [
    "NONE",
    "BUFFER",
    "COUNT",
    "TYPE",
    "TAG",
    "COMM",
    "RANK",
    "REQUEST",
    "ROOT",
    "GROUP",
    "OP",
    "TOPOLOGY",
    "DIMS",
    "ARG",
    "UNKNOWN",
    "TRUNCATE",
    "OTHER",
    "INTERN",
    "PENDING",
    "IN_STATUS",
];

/// The longest text that a library returns: `MPI_MAX_LIBRARY_VERSION_STRING` of MPICH and of the standard ABI.
const TEXT_BYTES: usize = 8192;
