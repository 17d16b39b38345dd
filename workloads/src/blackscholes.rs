//! Prices of options by the formula of Black and Scholes: PARSEC's blackscholes, which computes much for each option. Each
//! thread has options of its own: a control for which no placement and no neighbour matters much.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, untouched};
use crate::passes::Passes;
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::sync::Mutex;

/// Numbers of an option: spot and strike price, rate, volatility, time, and the price that is computed.
const NUMBERS: usize = 6;
/// Largest difference of a call's and a put's prices from what the parity says, for prices of about 100.
const TOLERANCE: f64 = 1e-4;

/// One thread's options.
struct Part<'a> {
    thread: usize,
    first: usize,
    numbers: &'a mut [f64],
}

/// Duration and result.
#[derive(Debug, Serialize)]
pub struct Priced {
    /// Time of the passes, without filling the options.
    #[serde(flatten)]
    span: Span,
    options: usize,
    /// Mean of all prices.
    mean_price: f64,
}

impl fmt::Display for Priced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} options, of {:.4} on average", self.span.seconds, self.options, self.mean_price)
    }
}

/// Prices options of `size` bytes, `repeat` times. Calls and puts take turns: each pair has the same numbers.
pub fn run(team: &Team, size: usize, repeat: usize, passes: Passes) -> Result<Priced, Error> {
    let pair = 2 * NUMBERS;
    error::check_count(size, pair * size_of::<f64>())?;
    let pairs = size / (pair * size_of::<f64>());
    let sums = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    let mut rest = untouched::<f64>(pairs * pair)?;
    let parts = (0..team.threads).map(|thread| {
        let mine = share(pairs, team.threads, thread);
        let numbers = rest.split_off_mut(..mine.len() * pair).unwrap_or_default();
        Part { thread, first: mine.start, numbers }
    });
    let rounds = team.parallel_rounds(parts.collect(), 2 + repeat, |part, round| {
        match round {
            _ if part.thread != 0 || round == 0 => {}
            round if round <= repeat => passes.next(),
            _ => passes.stop(),
        }
        match round {
            0 => part.fill(),
            round if round <= repeat => part.price(),
            _ => match part.check() {
                Ok(sum) => drop(sums.lock().map(|mut sums| sums.push(sum))),
                Err(error) => drop(failed.lock().map(|mut failed| *failed = Some(error))),
            },
        }
    })?;
    if let Some(error) = failed.into_inner().ok().flatten() {
        return Err(error);
    }
    passes.end()?;
    let sum: f64 = sums.into_inner().unwrap_or_default().iter().sum();
    let options = 2 * pairs;
    Ok(Priced { span: Span::from_rounds(&rounds[1..=repeat]), options, mean_price: sum / options as f64 })
}

impl Part<'_> {
    #[inline(never)]
    fn fill(&mut self) {
        for (pair, options) in (self.first..).zip(self.numbers.chunks_exact_mut(2 * NUMBERS)) {
            // From 0 to 1.
            let number =
                |which: usize| (mix((pair * NUMBERS + which) as u64 + 1, 5) >> 11) as f64 / (1_u64 << 53) as f64;
            let values = [
                50.0 + 100.0 * number(0),
                50.0 + 100.0 * number(1),
                0.1 * number(2),
                0.1 + 0.5 * number(3),
                0.1 + number(4),
            ];
            for option in options.chunks_exact_mut(NUMBERS) {
                option[..NUMBERS - 1].copy_from_slice(&values);
                option[NUMBERS - 1] = 0.0;
            }
        }
    }

    #[inline(never)]
    fn price(&mut self) {
        for (index, option) in self.numbers.chunks_exact_mut(NUMBERS).enumerate() {
            let &mut [spot, strike, rate, volatility, time, ref mut price] = option else { continue };
            *price = price_of(spot, strike, rate, volatility, time, index % 2 == 1);
        }
    }

    /// A call costs as much more than the put as the share costs more than the discounted strike price, whatever the
    /// formula's distribution is. Returns the sum of all prices.
    fn check(&self) -> Result<f64, Error> {
        let mut sum = 0.0;
        for pair in self.numbers.chunks_exact(2 * NUMBERS) {
            let (call, put) = (pair[NUMBERS - 1], pair[2 * NUMBERS - 1]);
            let expected = pair[0] - pair[1] * (-pair[2] * pair[4]).exp();
            let is_bounded = call >= expected - TOLERANCE && call <= pair[0] && put >= -TOLERANCE;
            if !is_bounded || (call - put - expected).abs() > TOLERANCE {
                let found = format!("{call} and {put}");
                let expected = format!("{expected} more for a call than for its put");
                return Err(Error::Wrong { what: "the prices of a pair", expected, found });
            }
            sum += call + put;
        }
        Ok(sum)
    }
}

fn price_of(spot: f64, strike: f64, rate: f64, volatility: f64, time: f64, is_put: bool) -> f64 {
    let spread = volatility * time.sqrt();
    let d1 = ((spot / strike).ln() + (rate + volatility * volatility / 2.0) * time) / spread;
    let (d2, discounted) = (d1 - spread, strike * (-rate * time).exp());
    if is_put { discounted * normal(-d2) - spot * normal(-d1) } else { spot * normal(d1) - discounted * normal(d2) }
}

/// The distribution of normally distributed numbers, to 7.5e-8: Abramowitz and Stegun, Handbook of mathematical
/// functions, 26.2.17.
fn normal(x: f64) -> f64 {
    const FACTORS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let sum = FACTORS.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let above = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if x < 0.0 { above } else { 1.0 - above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_those_of_the_book_and_a_wrong_one_is_found() {
        // Hull, Options, futures and other derivatives, example 15.6: 4.76 and 0.81.
        let [call, put] = [false, true].map(|is_put| price_of(42.0, 40.0, 0.1, 0.2, 0.5, is_put));
        assert!((call - 4.76).abs() < 0.005 && (put - 0.81).abs() < 0.005, "{call} {put}");
        let mut numbers = vec![0.0; 1000 * NUMBERS];
        let mut part = Part { thread: 0, first: 3, numbers: &mut numbers };
        part.fill();
        assert!(part.check().is_err(), "no prices yet");
        part.price();
        assert!(part.check().unwrap() > 0.0);
        part.numbers[NUMBERS - 1] += 0.01;
        assert!(part.check().is_err());
    }
}
