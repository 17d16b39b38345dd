//! Thresholds of policies on the command line.

use clap::Args;
use placement::Thresholds;
use std::str::FromStr;

/// Thresholds that differ from their defaults.
#[derive(Clone, Debug, Default, Args)]
pub struct ThresholdOptions {
    /// Set a threshold of the policy (docs/place.md lists them); may be repeated
    #[arg(long = "threshold", value_name = "NAME=VALUE")]
    settings: Vec<ThresholdSetting>,
}

/// A threshold with its value, checked.
#[derive(Clone, Debug)]
pub struct ThresholdSetting {
    pub name: String,
    pub value: String,
}

impl FromStr for ThresholdSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("a name, `=` and a number: imbalance_min=0.5")?;
        Thresholds::default().set(name, value).map_err(|error| error.to_string())?;
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

impl ThresholdOptions {
    /// Sets them. Of those that are given twice, the last one counts.
    pub fn apply(&self, thresholds: &mut Thresholds) {
        for ThresholdSetting { name, value } in &self.settings {
            // Names and values were checked when they were read.
            let _ = thresholds.set(name, value);
        }
    }

    /// As words of a command line.
    pub fn words(&self) -> Vec<String> {
        let words =
            |setting: &ThresholdSetting| ["--threshold".to_owned(), format!("{}={}", setting.name, setting.value)];
        self.settings.iter().flat_map(words).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_checked_when_they_are_read() {
        let parsed = |text: &str| text.parse::<ThresholdSetting>().map(|setting| setting.value);
        assert_eq!(parsed("imbalance_min=0.5").as_deref(), Ok("0.5"));
        for (text, why) in [
            ("imbalance_min", "a name, `=` and a number"),
            ("imbalance=1", "there is no threshold `imbalance` (did you mean `imbalance_min`?)"),
            ("x=1", "there is no threshold `x`; docs/place.md lists them"),
            ("imbalance_min=much", "threshold imbalance_min is a number, and `much` is none"),
            ("samples_min=1.5", "threshold samples_min is a whole number from 0 up, and `1.5` is none"),
            ("samples_min=-1", "threshold samples_min is a whole number"),
            ("imbalance_min=-1", "threshold imbalance_min must be at least 0, and finite: `-1` is not"),
            ("imbalance_min=inf", "threshold imbalance_min must be at least 0, and finite"),
            ("batch_pages=0", "threshold batch_pages must be at least 1"),
        ] {
            let said = parsed(text).unwrap_err();
            assert!(said.starts_with(why), "{text}: {said}");
        }
    }

    #[test]
    fn the_last_value_counts_and_words_give_the_same_again() {
        let settings = ["imbalance_min=0.5", "samples_min=3", "imbalance_min=0.7"].map(|text| text.parse().unwrap());
        let options = ThresholdOptions { settings: settings.into() };
        let mut thresholds = Thresholds::default();
        options.apply(&mut thresholds);
        assert_eq!((thresholds.imbalance_min.to_bits(), thresholds.samples_min), (0.7_f64.to_bits(), 3));
        assert_eq!(options.words()[..2], ["--threshold", "imbalance_min=0.5"]);
    }
}
