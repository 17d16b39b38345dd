//! `nearside lab setup`: fetches what the lab needs beside nearside itself.

use clap::Args;
use lab::setup::{KernelVersion, setup, setup_headers};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Fetch QEMU and a Linux kernel into a cache folder
///
/// They come from this host's own Debian mirror, through a private apt: nothing is installed, and no privileges are
/// needed. They stay in `$XDG_CACHE_HOME/nearside` (or `~/.cache/nearside`); delete that folder to remove them.
///
/// This works on Debian only. On other systems, Ubuntu too, name QEMU and a kernel of your own by `NEARSIDE_QEMU` and
/// `NEARSIDE_KERNEL_DIR`: nothing is fetched then.
#[derive(Debug, Args)]
#[command(after_help = "\
Environment:
  NEARSIDE_QEMU         the qemu-system-x86_64 to use, 11.1 or newer and built with plugins
  NEARSIDE_KERNEL       the kernel to use where no --kernel names one
  NEARSIDE_KERNEL_DIR   a folder with boot/vmlinuz-VERSION and lib/modules/VERSION to use, Linux 6.12 or newer")]
pub struct Arguments {
    /// Fetch this kernel, for `lab run --kernel`, instead of the default one, which stays unchanged: a series such as
    /// 6.18, a release such as 6.18.15, or newest, which looks for a newer one each time
    #[arg(long, value_name = "VERSION")]
    kernel: Option<KernelVersion>,

    /// Also fetch the kernel's headers, for building modules for `lab run --kernel-module`: make -C FOLDER M=$PWD modules,
    /// with the FOLDER that is printed
    #[arg(long)]
    headers: bool,

    /// Print nothing unless something fails
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let terminal = (!arguments.quiet && std::io::stderr().is_terminal()).then(indicatif::ProgressBar::new_spinner);
    if let Some(spinner) = &terminal {
        spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    }
    let progress = |step: &str| match &terminal {
        _ if arguments.quiet => {}
        Some(spinner) => spinner.set_message(step.to_owned()),
        None => drop(writeln!(std::io::stderr(), "{step}")),
    };
    let assets = setup(arguments.kernel.as_ref(), &progress)?;
    let headers = arguments.headers.then(|| setup_headers(&assets, &progress)).transpose()?;
    if let Some(spinner) = terminal {
        spinner.finish_and_clear();
    }
    if !arguments.quiet {
        let mut text = format!(
            "The lab is ready.\n  QEMU    {} at {}\n  kernel  {} at {}\n",
            assets.qemu.version,
            assets.qemu.program.display(),
            assets.kernel_version,
            assets.kernel_image.display()
        );
        if let Some(headers) = headers {
            let _ = writeln!(text, "  headers for {} at {}", assets.kernel_version, headers.display());
        }
        crate::output::write(&text, None)?;
    }
    Ok(ExitCode::SUCCESS)
}
