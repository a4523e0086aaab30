//! What was found out about convolutions, on disk.
//!
//! One text file per GPU and version of cuDNN, a line per problem:
//!
//! ```text
//! key ⇥ form ⇥ engine ⇥ type:value,type:value ⇥ microseconds ⇥ ready | compiled
//! key ⇥ none
//! ```
//!
//! Plans whose kernel had to be compiled lie beside it, a file each: reading one back spares the compilation.
//! The folder is a convenience: a line or file that makes no sense is as good as none, and two programs that
//! write at once lose at most what the other can find again.

use super::Plan;
use super::engines::{self, Recipe};
use super::operation::Form;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The plan of a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub form: Form,
    pub recipe: Recipe,
    pub micros: f32,
    pub compiled: bool,
}

type Entries = BTreeMap<String, Option<Entry>>;

/// The cache of one GPU and version of cuDNN.
pub struct Cache {
    file: PathBuf,
    folder: PathBuf,
    entries: Entries,
    changed: bool,
}

impl Cache {
    pub fn open(folder: &Path, gpu_name: &str, version: usize) -> Cache {
        let gpu: String = gpu_name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let stem = format!("convolutions-{}-cudnn-{version}", gpu.to_lowercase());
        let file = folder.join(format!("{stem}.txt"));
        Cache {
            entries: load(&file),
            folder: folder.join(stem),
            file,
            changed: false,
        }
    }

    /// What is known of a problem; `Some(None)` is to know that no engine takes it.
    pub fn get(&self, key: &str) -> Option<Option<Entry>> {
        self.entries.get(key).cloned()
    }

    pub fn put(&mut self, key: &str, plan: Option<&Plan>) {
        let entry = plan.map(|plan| {
            if plan.compiled
                && let Ok(text) = engines::write(&plan.plan)
            {
                // Without the file the kernel is compiled again.
                let _ = self.put_text(key, &text);
            }
            Entry {
                form: plan.form,
                recipe: plan.recipe.clone(),
                micros: plan.micros,
                compiled: plan.compiled,
            }
        });
        self.insert(key, entry);
    }

    fn insert(&mut self, key: &str, entry: Option<Entry>) {
        let before = self.entries.insert(key.to_string(), entry.clone());
        self.changed |= before != Some(entry);
    }

    /// Writes what is new, beside what others have written meanwhile.
    pub fn save(&mut self) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        let mut all = load(&self.file);
        all.append(&mut self.entries.clone());
        let mut text = String::new();
        for (key, entry) in &all {
            text.push_str(&line(key, entry.as_ref()));
            text.push('\n');
        }
        write(&self.file, text.as_bytes())?;
        self.entries = all;
        self.changed = false;
        Ok(())
    }

    fn text_file(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{:016x}.json", hash(key)))
    }

    /// The written plan of a problem; its first line is the key.
    pub fn text(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.text_file(key)).ok()?;
        let rest = bytes.strip_prefix(key.as_bytes())?;
        rest.strip_prefix(b"\n").map(<[u8]>::to_vec)
    }

    fn put_text(&self, key: &str, text: &[u8]) -> io::Result<()> {
        let mut bytes = key.as_bytes().to_vec();
        bytes.push(b'\n');
        bytes.extend_from_slice(text);
        write(&self.text_file(key), &bytes)
    }
}

/// To a temporary name, then renamed: readers see the old file or the new one.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, bytes)?;
    std::fs::rename(&temporary, file)
}

fn load(file: &Path) -> Entries {
    let Ok(bytes) = std::fs::read(file) else {
        return Entries::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    text.lines().filter_map(parse).collect()
}

fn line(key: &str, entry: Option<&Entry>) -> String {
    let Some(entry) = entry else {
        return format!("{key}\tnone");
    };
    let form = match entry.form {
        Form::Direct => "direct",
        Form::Identity => "identity",
    };
    let knobs: Vec<String> = entry
        .recipe
        .knobs
        .iter()
        .map(|(kind, value)| format!("{kind}:{value}"))
        .collect();
    let kernel = match entry.compiled {
        true => "compiled",
        false => "ready",
    };
    format!(
        "{key}\t{form}\t{}\t{}\t{}\t{kernel}",
        entry.recipe.engine,
        knobs.join(","),
        entry.micros
    )
}

fn parse(line: &str) -> Option<(String, Option<Entry>)> {
    let fields: Vec<&str> = line.split('\t').collect();
    match fields.as_slice() {
        [key, "none"] if !key.is_empty() => Some((key.to_string(), None)),
        [key, form, engine, knobs, micros, kernel] if !key.is_empty() => {
            let knobs = knobs
                .split(',')
                .filter(|k| !k.is_empty())
                .map(|knob| {
                    let (kind, value) = knob.split_once(':')?;
                    Some((kind.parse().ok()?, value.parse().ok()?))
                })
                .collect::<Option<Vec<(u32, i64)>>>()?;
            let entry = Entry {
                form: match *form {
                    "direct" => Form::Direct,
                    "identity" => Form::Identity,
                    _ => return None,
                },
                recipe: Recipe {
                    engine: engine.parse().ok()?,
                    knobs,
                },
                micros: micros.parse().ok().filter(|m: &f32| m.is_finite())?,
                compiled: match *kernel {
                    "compiled" => true,
                    "ready" => false,
                    _ => return None,
                },
            };
            Some((key.to_string(), Some(entry)))
        }
        _ => None,
    }
}

/// FNV-1a: the same name for the same key, in every version of this program.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            form: Form::Identity,
            recipe: Recipe {
                engine: 62,
                knobs: vec![(3, -1), (40, 128)],
            },
            micros: 12.25,
            compiled: true,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rrvq-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn comes_back_as_it_was_and_survives_damage() {
        let folder = folder("conv-cache");
        let mut cache = Cache::open(&folder, "NVIDIA H200", 91_900);
        assert_eq!(cache.get("a"), None);
        cache.insert("a b | c", Some(entry()));
        cache.insert("nobody", None);
        cache.put_text("a b | c", b"{\n}").unwrap();
        cache.save().unwrap();

        let file = folder.join("convolutions-nvidia-h200-cudnn-91900.txt");
        let mut text = std::fs::read(&file).unwrap();
        text.extend_from_slice(
            b"\xff\xfe half a li\nkey\tdirect\tx\t\t1\tready\n\n\tnone\nk\tdirect\t1\t1:\t1\tready",
        );
        std::fs::write(&file, text).unwrap();

        let cache = Cache::open(&folder, "NVIDIA H200", 91_900);
        assert_eq!(cache.entries.len(), 2);
        assert_eq!(cache.get("a b | c"), Some(Some(entry())));
        assert_eq!(cache.get("nobody"), Some(None));
        assert_eq!(cache.text("a b | c").as_deref(), Some(b"{\n}".as_slice()));
        assert_eq!(cache.text("nobody"), None);
        assert_eq!(
            Cache::open(&folder, "NVIDIA H200", 92_000).get("nobody"),
            None
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_writers_keep_what_both_found() {
        let folder = folder("conv-cache-two");
        let mut one = Cache::open(&folder, "gpu", 1);
        let mut two = Cache::open(&folder, "gpu", 1);
        one.insert("one", Some(entry()));
        two.insert("two", None);
        one.save().unwrap();
        two.save().unwrap();
        let both = Cache::open(&folder, "gpu", 1);
        assert!(both.get("one").is_some() && both.get("two").is_some());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
