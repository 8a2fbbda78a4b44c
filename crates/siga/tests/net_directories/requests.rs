//! Tests of requests over the sockets of a network by processes without the right to make them.

use crate::TOPOLOGY;
use crate::attacker::{Stage, USER, is_root, next};
use crate::network::{Network, PATIENCE, wait_until};
use siga_fabric::client::Client;
use siga_fabric::protocol::channel::Ended;
use siga_fabric::protocol::message::{GuestEvent, PROTOCOL};
use siga_fabric::protocol::request::{Answer, Request};
use siga_fabric::protocol::secret::Secret;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

#[test]
fn another_user_is_refused_by_credentials_even_in_a_directory_open_to_all() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let network = Network::up("opened", TOPOLOGY);
    let control = network.run_dir().join("opened/control");
    let ask = || stage.play(Some(USER), &format!("ask {}", control.display())).seen();
    assert_eq!(ask(), ["Permission denied (os error 13)"]);
    let modes: Vec<(PathBuf, u32)> = [network.base.path(), &network.run_dir(), control.parent().unwrap(), &control]
        .map(|path| (path.to_owned(), fs::metadata(path).unwrap().mode()))
        .to_vec();
    for (path, _) in &modes {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    assert_eq!(ask(), ["Err(Closed)"]);
    for (path, mode) in &modes {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777)).unwrap();
    }
    assert!(network.log().contains("it comes from a process of another user"), "{}", network.log());
    assert!(network.pid_of("a").is_some());
}

/// Returns the administrative requests, which neither a guest nor an application may make.
fn administrative() -> Vec<Request> {
    let guest = || "a".parse().unwrap();
    let network = || "lan".parse().unwrap();
    vec![
        Request::Start { name: guest(), topology: TOPOLOGY.to_owned(), lease: true, takes_over: false },
        Request::Status { detail: true },
        Request::Report(guest()),
        Request::Down,
        Request::StartGuest(guest()),
        Request::StopGuest(guest()),
        Request::Grant { network: network(), guest: guest() },
        Request::Allow { guest: guest(), allow: None },
        Request::Revoke { network: network(), guest: guest() },
        Request::Secret { guest: guest(), application: false },
        Request::Ping { guest: guest(), to: "10.0.0.2".parse().unwrap(), bytes: 8, timeout_ms: 100 },
        Request::Capture { guest: guest(), snap_bytes: 64, blocks: false },
    ]
}

#[test]
fn a_request_over_the_channel_of_a_guest_is_refused() {
    let network = Network::up("channel", TOPOLOGY);
    let before = network.pid("a");
    let secret = Secret::claimed(network.text(&["token", "channel", "b"]).trim());
    for request in administrative() {
        let client = Client::connect_at(&network.run_dir(), &network.name).unwrap();
        let mut channel = client.attach(&"b".parse().unwrap(), &secret).unwrap();
        channel.send(&GuestEvent::Ready { confinement: "none".to_owned() }, Vec::new()).unwrap();
        channel.send(&request, Vec::new()).unwrap();
        // The guest may still receive orders, but must never receive an answer.
        let ended = loop {
            match next(&mut channel) {
                Ok(message) => assert!(serde_json::from_value::<Answer>(message.clone()).is_err(), "{message}"),
                Err(ended) => break ended,
            }
        };
        assert_eq!(ended, Ended::Closed, "{request:?}");
        wait_until("the guest is not given up", || network.pid_of("b").is_none());
    }
    assert_eq!(network.pid("a"), before);
    assert!(network.log().contains("the guest sent an invalid message"), "{}", network.log());
}

#[test]
fn a_process_that_attached_an_application_may_send_no_other_request() {
    let network = Network::up("attached", TOPOLOGY);
    let (base, name) = (network.run_dir(), &network.name);
    let attach_token = Secret::claimed(network.text(&["token", "attached", "b"]).trim());
    let secret = network.application_secret("a");
    let mut early = Client::connect_at(&base, name).unwrap();
    let mut application = Client::connect_at(&base, name).unwrap();
    let request = Request::Application {
        protocol: PROTOCOL,
        version: String::new(),
        guest: "a".parse().unwrap(),
        secret,
        process: None,
    };
    application.ask(request, Vec::new()).unwrap();
    assert!(matches!(application.answer(PATIENCE).unwrap(), Some(Answer::Application { .. })));
    // The process sends each request over the application's connection, over an older connection and over a new one.
    let mut late = Client::connect_at(&base, name).unwrap();
    for request in administrative() {
        let shown = format!("{request:?}");
        let again: Request = serde_json::from_value(serde_json::to_value(&request).unwrap()).unwrap();
        let third: Request = serde_json::from_value(serde_json::to_value(&request).unwrap()).unwrap();
        for (client, request) in [(&mut application, request), (&mut early, again), (&mut late, third)] {
            let refused = client.request(request).unwrap_err();
            assert!(!refused.to_string().contains("control program has ended"), "{shown}: {refused}");
        }
    }
    // The process may attach again, also as an external guest. Administrative requests over that connection are refused as well.
    let client = Client::connect_at(&base, name).unwrap();
    let _channel = client.attach(&"b".parse().unwrap(), &attach_token).unwrap();
    let refused = late.request(Request::Secret { guest: "b".parse().unwrap(), application: false }).unwrap_err();
    assert!(refused.to_string().contains("attached"), "{refused}");
    // Another process of the same user is still an administrator.
    assert_eq!(network.text(&["token", "attached", "b"]).trim(), attach_token.text());
}
