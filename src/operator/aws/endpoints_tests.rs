//! Checks that calls use the endpoints of AWS's own settings: those of FIPS 140, and the dual-stack ones.

use std::sync::{Arc, Mutex};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider, SharedHttpClient};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

use super::SqsQueue;
use crate::model::{ClassName, RecordId, TableName};
use crate::ports::{PoolQueue as _, Store as _};
use crate::store::DynamoStore;

/// Records the host of each call, and connects to nothing.
#[derive(Clone, Debug, Default)]
struct Noted(Arc<Mutex<Vec<String>>>);

impl HttpConnector for Noted {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let host = request.uri().split('/').nth(2).unwrap_or_default().to_owned();
        self.0.lock().unwrap().push(host);
        HttpConnectorFuture::ready(Err(ConnectorError::user("nobody is called".into())))
    }
}

impl HttpClient for Noted {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

fn config(noted: &Noted, fips: bool, both: bool) -> SdkConfig {
    let credentials = Credentials::new("test", "test", None, None, "test");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-west-2"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(SharedHttpClient::new(noted.clone()))
        .use_fips(fips)
        .use_dual_stack(both)
        .build()
}

#[tokio::test(start_paused = true)]
async fn every_client_goes_to_the_endpoints_that_awss_settings_name() {
    for (fips, both, wanted) in [
        (
            false,
            false,
            [
                "dynamodb.us-west-2.amazonaws.com",
                "sqs.us-west-2.amazonaws.com",
                "ec2.us-west-2.amazonaws.com",
            ],
        ),
        (
            true,
            false,
            [
                "dynamodb-fips.us-west-2.amazonaws.com",
                "sqs-fips.us-west-2.amazonaws.com",
                "ec2-fips.us-west-2.amazonaws.com",
            ],
        ),
        (false, true, ["dynamodb.us-west-2.api.aws", "sqs.us-west-2.api.aws", "ec2.us-west-2.api.aws"]),
    ] {
        let table = TableName::parse("yard").unwrap();
        let asked = |noted: &Noted| noted.0.lock().unwrap().pop().expect("it was called");
        let noted = Noted::default();
        let config = config(&noted, fips, both);
        let store = DynamoStore::connect(table.clone(), &config);
        store.get(&RecordId::new("pool#a", "pool")).await.unwrap_err();
        assert_eq!(asked(&noted), wanted[0]);
        let queue = SqsQueue::connect(table.clone(), &config);
        queue.ensure(&ClassName::parse("linux").unwrap()).await.unwrap_err();
        assert_eq!(asked(&noted), wanted[1]);
        #[cfg(feature = "ec2")]
        {
            use crate::ports::Compute as _;
            let compute = super::Ec2Compute::connect(super::ec2::testing::options(), &config);
            compute.list().await.unwrap_err();
            assert_eq!(asked(&noted), wanted[2]);
        }
    }
}
