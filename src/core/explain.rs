//! Explanations for people: what would be done, why a record is in its state, and when progress can be expected.
//! Nothing is decided here, and no decision reads this.

mod causes;
mod end;
mod evidence;
mod forecast;
mod plan;
mod record;
mod run;
mod sets;
mod shares;
mod sizing;

pub use causes::{CAUSES, Cause, Probable, probable};
pub use end::{ended, lost_by};
pub use evidence::{Said, evidence, related, wrong};
pub use forecast::{Forecast, Pace, Place, forecast, no_end};
pub use plan::{judge, picture};
pub use record::{explain, is_settled, machine, pool, remark};
pub use run::{JobFate, job_fates, requests_of_run};
pub use sets::{SetLack, SetReport, SlotCounts, jobs_of_slot, sets};
pub use shares::{ShareReport, before, braked, shares};
pub use sizing::hours_ahead;
