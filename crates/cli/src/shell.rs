//! `rrvq completions` and `rrvq man`: what a shell and `man` need to know of the program.

use crate::args::{self, Args};
use crate::output::check_free;
use crate::terminal::{line, note};
use clap::CommandFactory;
use rrvq::files::write_atomic;
use rrvq::{Error, Result};

pub fn completions(args: &args::Completions) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "rrvq", &mut script);
    line(String::from_utf8_lossy(&script).trim_end());
}

/// The pages of a command and of those in it.
fn pages(command: &clap::Command) -> Vec<clap_mangen::Man> {
    let inside = command
        .get_subcommands()
        .filter(|inside| !inside.is_hide_set());
    let own = clap_mangen::Man::new(command.clone());
    inside.flat_map(pages).chain([own]).collect()
}

pub fn man(args: &args::Man) -> Result<()> {
    let failed = |error| match &args.out {
        Some(folder) => Error::io("write", folder, error),
        None => Error::io("print to", "standard output", error),
    };
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(Args::command());
        man.render(&mut page).map_err(failed)?;
        line(String::from_utf8_lossy(&page).trim_end());
        return Ok(());
    };
    check_free(&folder.join("rrvq.1"))?;
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut program = Args::command().disable_help_subcommand(true);
    program.build();
    for page in pages(&program) {
        write_atomic(folder.join(page.get_filename()), |out| page.render(out))?;
    }
    note(format!("man pages: {}", folder.display()));
    Ok(())
}
