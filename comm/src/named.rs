//! Choices that have names in configurations.

/// Gives an enumeration whose variants have names `ALL`, `name` and `from_name`.
macro_rules! named {
    ($choice:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        impl $choice {
            /// Every one of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name in configurations.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|choice| choice.name() == name)
            }
        }
    };
}
pub(crate) use named;

#[cfg(test)]
mod tests {
    use crate::communicator::{StagingMemory, StagingScheme};
    use crate::device::{MemoryMode, Peers, Signals, Waits, Wires};
    use crate::element::ElementType;
    use crate::fabric::Throttling;
    use serde::Deserialize;
    use serde::de::value::{Error, StrDeserializer};

    /// Each is found by its name, and by no other; and files say it by that name too.
    macro_rules! check {
        ($choice:ident) => {
            for choice in $choice::ALL {
                assert_eq!($choice::from_name(choice.name()), Some(choice));
            }
            assert_eq!($choice::from_name("Auto"), None);
        };
        ($($choice:ident in files),*) => {
            $(
                check!($choice);
                for choice in $choice::ALL {
                    let read: Result<_, Error> = $choice::deserialize(StrDeserializer::new(choice.name()));
                    assert_eq!(read, Ok(choice));
                }
            )*
        };
    }

    #[test]
    fn names_are_those_of_files() {
        check!(StagingMemory in files, StagingScheme in files);
        check!(MemoryMode in files, Peers in files, Signals in files, Waits in files, Wires in files);
        check!(ElementType);
        check!(Throttling);
    }
}
