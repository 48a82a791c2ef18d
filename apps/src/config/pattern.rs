//! `app.pattern` of `life`: a word or a file, and what was probably meant.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use super::app::AppSettings;
use super::fault::{Fault, Located, Origin};
use super::life::LifeSettings;
use super::names::nearest;
use super::section::Section;

/// The key in `[app]`.
const KEY: &str = "pattern";

const GLIDER_FIELD: &str = "glider-field";
const RANDOM: &str = "random:";
const EXPECTED: &str = "the path of an RLE file, `glider-field` or `random:SEED`";

/// The folder beside a configuration that patterns are kept in.
const FOLDER: &str = "patterns/";
const EXTENSION: &str = ".rle";

/// The first generation of `life`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
#[non_exhaustive]
pub enum Pattern {
    /// A run-length encoded file. A relative path in a configuration file starts at that
    /// file's folder, one in a flag at the working directory; this is the resolved path.
    File(PathBuf),
    /// Gliders all over the grid.
    GliderField,
    /// Random cells from a seed.
    Random(u64),
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(path) => serializer.collect_str(&path.display()),
            Self::GliderField => serializer.serialize_str(GLIDER_FIELD),
            Self::Random(seed) => serializer.collect_str(&format_args!("{RANDOM}{seed}")),
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    /// From a resolved configuration, whose paths are those to open.
    fn try_from(written: String) -> Result<Self, String> {
        match generated(&written) {
            Some(pattern) => pattern.map_err(|seed| format!("`{seed}` is not a seed")),
            None => Ok(Self::File(PathBuf::from(written))),
        }
    }
}

/// The generated pattern of that name; `None` for the path of a file, and as an error what should
/// have been a seed.
fn generated(text: &str) -> Option<Result<Pattern, &str>> {
    if text == GLIDER_FIELD {
        return Some(Ok(Pattern::GliderField));
    }
    let seed = text.strip_prefix(RANDOM)?;
    Some(seed.parse().map(Pattern::Random).map_err(|_| seed))
}

impl Pattern {
    /// `folder` is the folder of the configuration file. Whether the default is there is left to [`check_default`].
    pub(super) fn read(section: &Section<'_>, folder: &Path) -> Result<Self, Fault> {
        let text = section.string(KEY, EXPECTED)?;
        let text = text.unwrap_or_else(|| Located::default("patterns/acorn.rle".to_owned()));
        if let Some(pattern) = generated(&text.value) {
            return pattern.map_err(|seed| {
                let message = format!("`{seed}` is not a seed for `app.pattern`");
                Fault::new(&text.origin, message)
                    .expected("an integer from 0 to 18446744073709551615, as in `random:42`")
            });
        }
        let base = text.origin.base(folder);
        let path = base.join(&text.value);
        if !path.is_file() && text.origin != Origin::Default {
            let message = format!("`app.pattern`: {}", found_at(&path));
            return Err(Fault::new(&text.origin, message)
                .expected(EXPECTED)
                .nearest(meant(&text.value, base).as_deref()));
        }
        Ok(Self::File(path))
    }
}

/// That the default is there if it is what the application begins with. The last thing to check of a configuration: it
/// is beside the configurations of `life` only, and where the user has made a mistake, that is the one to tell.
pub(super) fn check_default(settings: &AppSettings, section: &Section<'_>) -> Result<(), Fault> {
    match settings {
        AppSettings::Life(LifeSettings { pattern: Pattern::File(path), .. })
            if section.node(KEY).is_none() && !path.is_file() =>
        {
            let message = format!("the default of `app.pattern`: {}", found_at(path));
            Err(Fault::new(&Origin::Default, message)
                .expected(format!("`app.pattern` to be set: {EXPECTED}"))
                .hint("set it in the file, or as in `--set app.pattern=random:1`"))
        }
        _ => Ok(()),
    }
}

/// What is there in place of a file.
fn found_at(path: &Path) -> String {
    let shown = path.display();
    match path {
        _ if path.is_dir() => format!("{shown} is a folder"),
        // A device or a pipe, which each rank would read for itself.
        _ if path.exists() => format!("{shown} is no regular file"),
        _ => format!("there is no file {shown}"),
    }
}

/// What was probably asked for: a word, or a file of the folder that was asked for or of the usual
/// one. A pattern may be asked for by its bare name.
fn meant(asked: &str, base: &Path) -> Option<String> {
    let (word, seed) = asked.split_once(':').unwrap_or((asked, "SEED"));
    let (asked_folder, name) = word.split_at(word.rfind('/').map_or(0, |slash| slash + 1));
    let mut known = vec![
        (GLIDER_FIELD.to_owned(), GLIDER_FIELD.to_owned()),
        ("random".to_owned(), format!("{RANDOM}{seed}")),
    ];
    for folder in [asked_folder, FOLDER] {
        let stems = stems(&base.join(folder)).into_iter();
        known.extend(stems.map(|stem| {
            let path = format!("{folder}{stem}{EXTENSION}");
            (stem, path)
        }));
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    let found = nearest(without_extension(name), &names)?;
    known.iter().find(|(name, _)| name == found).map(|(_, meant)| meant.clone())
}

/// A name without the extension of a pattern file, or a slip of it.
fn without_extension(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, slip)) if nearest(slip, &[EXTENSION.trim_start_matches('.')]).is_some() => stem,
        _ => name,
    }
}

/// The names of the pattern files in a folder, without extension; none if there is no folder.
fn stems(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut stems: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(EXTENSION)?.to_owned())).collect();
    // Folders are read in no order, and messages should not change from run to run.
    stems.sort_unstable();
    stems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_what_was_meant() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/life");
        for (asked, right) in [
            ("glider_field", "glider-field"),
            ("Glider-Field", "glider-field"),
            ("random", "random:SEED"),
            ("rnadom:7", "random:7"),
            ("acorn", "patterns/acorn.rle"),
            ("acorn.rle", "patterns/acorn.rle"),
            ("patterns/acron", "patterns/acorn.rle"),
            ("patterns/acron.rle", "patterns/acorn.rle"),
            ("pat/acorn.rlee", "patterns/acorn.rle"),
            ("acorn.RLE", "patterns/acorn.rle"),
        ] {
            assert_eq!(meant(asked, &configs).as_deref(), Some(right), "{asked}");
        }
        assert_eq!(
            meant("../life/patterns/acron.rle", &configs).as_deref(),
            Some("../life/patterns/acorn.rle")
        );
        assert_eq!(meant("spaceships", &configs), None);
        assert_eq!(meant("nowhere/a.rle", &configs), None);
    }

    #[test]
    fn resolved_patterns_survive_json() {
        for pattern in [
            Pattern::GliderField,
            Pattern::Random(u64::MAX),
            Pattern::File(PathBuf::from("configs/random.rle")),
        ] {
            let text = serde_json::to_string(&pattern).expect("is plain data");
            assert_eq!(serde_json::from_str::<Pattern>(&text).expect("was written by us"), pattern);
        }
        assert!(serde_json::from_str::<Pattern>("\"random:-1\"").is_err());
    }
}
