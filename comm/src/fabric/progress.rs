//! What a thread has begun and has to go on with while it waits for something else.
//!
//! A peer may need an answer of this rank before it comes to what this rank waits for, so whatever
//! blocks a thread makes progress on all engines that live on it.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// Something that only moves when the thread that it lives on calls it.
pub(crate) trait Progress {
    /// Does what can be done without blocking; whether more is left.
    fn progress(&self) -> bool;
}

thread_local! {
    static ENGINES: RefCell<Vec<Weak<dyn Progress>>> = const { RefCell::new(Vec::new()) };
}

/// Has the calling thread's waits make progress on an engine while it lives.
pub(crate) fn register<E: Progress + 'static>(engine: &Rc<E>) {
    let engine: Rc<dyn Progress> = engine.clone();
    ENGINES.with_borrow_mut(|engines| {
        engines.retain(|other| other.strong_count() > 0);
        engines.push(Rc::downgrade(&engine));
    });
}

/// Makes progress on the engines of the calling thread; whether any has more to do. One that ends has none any more while
/// it drops what it has kept in places of its own, be it a world.
pub(crate) fn progress_all() -> bool {
    let more = ENGINES.try_with(|engines| {
        let engines = engines.borrow();
        engines.iter().filter_map(Weak::upgrade).fold(false, |more, engine| engine.progress() | more)
    });
    more.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use crate::device::progress;
    use crate::world::World;
    use std::cell::RefCell;

    /// Makes progress when it is dropped, as whatever blocks then does.
    struct Ending;

    impl Drop for Ending {
        fn drop(&mut self) {
            progress();
        }
    }

    #[test]
    fn a_thread_may_block_while_it_ends() {
        thread_local! {
            static KEPT: RefCell<Option<Ending>> = const { RefCell::new(None) };
        }
        let ended = std::thread::spawn(|| {
            // Looked at before what this module keeps for the thread, and so dropped after it.
            KEPT.set(Some(Ending));
            progress();
            drop(World::alone().expect("it can be made"));
        });
        ended.join().expect("it does not panic");
    }
}
