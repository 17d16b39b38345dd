//! Fits the network to an observed latency, so that predictions start from what was measured.

use crate::distances::Distances;
use crate::network::{Class, solve};

/// Largest factor by which traffic may differ from what was observed.
const MOST_SCALE: f64 = 100.0;
/// A modelled latency within this relative distance of the observed one needs no scaling.
const CLOSE: f64 = 0.02;
/// One within this relative distance ends the search.
const EXACT: f64 = 1e-3;
/// Most bisections of the factor.
const STEPS: usize = 24;

/// The classes with this many times as many lines.
pub fn scaled(classes: &[Class], factor: f64) -> Vec<Class> {
    classes.iter().map(|class| Class { lines: class.lines * factor, ..class.clone() }).collect()
}

/// How much more traffic there is than the classes have, from their mean latency, weighted by their numbers of accesses:
/// prefetches are not observed, and a source may not know how many accesses a sample stands for. None if the machine's
/// description lacks a latency.
pub fn scale(classes: &[Class], accesses: &[f64], observed_ns: f64, distances: &Distances) -> Option<f64> {
    let all: f64 = accesses.iter().sum();
    let modelled = |scale: f64| {
        let served = solve(&scaled(classes, scale), distances)?;
        Some(served.iter().zip(accesses).map(|(served, accesses)| served.latency_ns * accesses).sum::<f64>() / all)
    };
    fit(observed_ns, modelled)
}

/// The factor of traffic at which the modelled latency, ns, is the observed one. None if it cannot be modelled.
pub fn fit(observed_ns: f64, modelled: impl Fn(f64) -> Option<f64>) -> Option<f64> {
    if (modelled(1.0)? / observed_ns - 1.0).abs() < CLOSE {
        return Some(1.0);
    }
    let (mut low, mut high) = (1.0 / MOST_SCALE, MOST_SCALE);
    for _ in 0..STEPS {
        let middle = (low * high).sqrt();
        let part = modelled(middle)? / observed_ns;
        if (part - 1.0).abs() < EXACT {
            return Some(middle);
        }
        if part < 1.0 { low = middle } else { high = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{LINE_BYTES, NodeShare};
    use machine::NodeId;

    #[test]
    fn more_traffic_is_found_where_latency_is_higher_than_the_model_says() {
        let machine = machine::presets::find("opteron-6164x2").unwrap();
        let distances = Distances::new(&machine);
        let to = vec![NodeShare { to: NodeId(0), part: 1.0, bytes: LINE_BYTES }];
        let classes = [Class { from: NodeId(0), lines: 4.0, work_ns: 50.0, to, most_rate: f64::INFINITY }];
        let latency = |scale: f64| solve(&scaled(&classes, scale), &distances).unwrap()[0].latency_ns;
        for wanted in [0.5, 1.0, 3.0, 20.0] {
            let found = scale(&classes, &[1.0], latency(wanted), &distances).unwrap();
            assert!((latency(found) / latency(wanted) - 1.0).abs() < CLOSE, "{found} for {wanted}");
        }
    }
}
