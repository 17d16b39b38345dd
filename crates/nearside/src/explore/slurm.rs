//! A campaign as a job array of Slurm: each task runs a part of it with the same command.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

/// The script of a job array. Its tasks run parts of the campaign, with these options, and may be ended and put back into
/// the queue at any time: what is left is what has no result.
pub fn script(program: &Path, file: &Path, into: &Path, options: &[OsString], tasks: usize) -> Result<String, String> {
    let word = |word: &Path| {
        let text = word.to_str().ok_or_else(|| format!("{} is not UTF-8, as a script must be", word.display()))?;
        shlex::try_quote(text).map(std::borrow::Cow::into_owned).map_err(|error| error.to_string())
    };
    let (program, file, into) = (word(program)?, word(file)?, word(into)?);
    let last = tasks.saturating_sub(1);
    let mut script = format!(
        "#!/bin/sh\n#SBATCH --job-name=nearside-explore\n#SBATCH --array=0-{last}\n#SBATCH --exclusive\n#SBATCH --requeue\n\
         #SBATCH --signal=B:TERM@60\nexec {program} explore {file} --into {into} --quiet --shard \"$SLURM_ARRAY_TASK_ID/{tasks}\""
    );
    for option in options {
        let _ = write!(script, " {}", word(Path::new(option))?);
    }
    script.push('\n');
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_runs_its_part_with_the_same_options() {
        let options = ["--only", "app=cg,pinning=none|sockets"].map(OsString::from);
        let script = script(Path::new("/bin/near side"), Path::new("/c.toml"), Path::new("/r"), &options, 16).unwrap();
        let lines: Vec<&str> = script.lines().collect();
        assert!(
            lines[0] == "#!/bin/sh" && lines.contains(&"#SBATCH --array=0-15") && lines.contains(&"#SBATCH --requeue")
        );
        let last = "exec '/bin/near side' explore /c.toml --into /r --quiet --shard \"$SLURM_ARRAY_TASK_ID/16\" --only \
                    'app=cg,pinning=none|sockets'";
        assert_eq!(lines.last(), Some(&last));
    }
}
