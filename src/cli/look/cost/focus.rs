//! The columns of FOCUS 1.2 (<https://focus.finops.org>): a row for each machine, request and day, so that rows can be
//! joined with a bill by `ResourceId`. Idle time is not distributed there: a tag names its owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::report::dollars;
use super::sources::Lines;
use runyard_core::ledger::{Entry, Machine, Money, Period, Priced, Prices, region_of};
use runyard_core::model::{RecordId, UsageClass};

const DAY: i64 = 86_400;

/// The key of a row: the machine, the request or person that used it, and the day.
type Key = (String, (Option<RecordId>, Option<Arc<str>>), i64);

/// Returns all rows of a period.
pub(super) fn document(
    entries: &[Entry],
    prices: &Prices,
    lines: &Lines,
    from: Timestamp,
    to: Timestamp,
) -> Value {
    let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
    for entry in entries {
        let mut day = entry.from.div_euclid(DAY) * DAY;
        while day <= entry.to {
            if let Some(part) = entry.within(Period { from: day, to: day + DAY }) {
                let owner = (entry.request.clone(), entry.holder.clone());
                let key = (entry.machine.instance_arn.to_string(), owner, day);
                rows.entry(key).or_insert_with(|| Row::of(&entry.machine)).add(&part, prices);
            }
            day += DAY;
        }
    }
    let within = (from.as_second(), to.as_second());
    let items: Vec<Value> = rows.iter().map(|(key, row)| row.document(key, lines, within)).collect();
    json!({"items": items})
}

struct Row {
    machine: Arc<Machine>,
    seconds: u64,
    money: Priced,
    unpriced: bool,
}

impl Row {
    fn of(machine: &Arc<Machine>) -> Self {
        Self { machine: machine.clone(), seconds: 0, money: Priced::default(), unpriced: false }
    }

    fn add(&mut self, part: &Entry, prices: &Prices) {
        self.seconds += part.billed();
        match prices.of(part) {
            Ok(money) => self.money += money,
            Err(_) => self.unpriced = true,
        }
    }

    fn tags(&self, request: Option<&RecordId>, holder: Option<&str>, lines: &Lines) -> Value {
        let (repository, run) = request.and_then(|request| lines.served(request)).unzip();
        json!({
            "runyard_class": self.machine.class,
            "runyard_repository": repository,
            "runyard_run": run,
            "runyard_workflow": request.and_then(|request| lines.workflow(request)),
            "runyard_holder": holder,
            "runyard_part": match (request, holder) {
                (Some(_), _) => "request",
                (None, Some(_)) => "held",
                (None, None) => "idle",
            },
        })
    }

    fn document(&self, (arn, (request, holder), day): &Key, lines: &Lines, (from, to): (i64, i64)) -> Value {
        let machine = &self.machine;
        let moment =
            |second: i64| Timestamp::from_second(second).map(|at| at.to_string()).unwrap_or_default();
        let cost = |money: Money| if self.unpriced { Value::Null } else { dollars(money) };
        let effective = cost(self.money.cost + self.money.volume);
        let list = cost(self.money.list + self.money.volume);
        let account = arn.split(':').nth(4).unwrap_or_default();
        let region = region_of(&machine.zone);
        let pricing = match machine.usage_class {
            UsageClass::OnDemand => "Standard",
            UsageClass::Spot => "Dynamic",
        };
        json!({
            "AvailabilityZone": machine.zone,
            "BilledCost": effective,
            "BillingAccountId": account,
            "BillingAccountName": Value::Null,
            "BillingCurrency": "USD",
            "BillingPeriodEnd": month(*day, 1),
            "BillingPeriodStart": month(*day, 0),
            "ChargeCategory": "Usage",
            "ChargeClass": Value::Null,
            "ChargeDescription": format!("{} of class {} at list price (an estimate by Runyard)", machine.instance_type, machine.class),
            "ChargeFrequency": "Usage-Based",
            "ChargePeriodEnd": moment((*day + DAY).min(to.max(*day))),
            "ChargePeriodStart": moment((*day).max(from)),
            "ConsumedQuantity": self.seconds,
            "ConsumedUnit": "Seconds",
            "ContractedCost": effective,
            "EffectiveCost": effective,
            "InvoiceIssuerName": "Amazon Web Services, Inc.",
            "ListCost": list,
            "PricingCategory": pricing,
            "PricingQuantity": self.seconds as f64 / 3600.0,
            "PricingUnit": "Hours",
            "ProviderName": "AWS",
            "PublisherName": "Amazon Web Services, Inc.",
            "RegionId": region,
            "ResourceId": arn,
            "ResourceName": machine.instance_id,
            "ResourceType": "Virtual Machine",
            "ServiceCategory": "Compute",
            "ServiceName": "Amazon Elastic Compute Cloud",
            "SkuId": machine.instance_type,
            "Tags": self.tags(request.as_ref(), holder.as_deref(), lines).to_string(),
        })
    }
}

/// Returns the beginning of a day's month, or of a later month.
fn month(day: i64, later: i32) -> String {
    let date = Timestamp::from_second(day)
        .ok()
        .map(|at| at.to_zoned(jiff::tz::TimeZone::UTC).date().first_of_month());
    let date = date.and_then(|date| date.checked_add(jiff::Span::new().months(later)).ok());
    date.map(|date| format!("{date}T00:00:00Z")).unwrap_or_default()
}
