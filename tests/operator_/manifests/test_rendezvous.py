"""What the workers of a gang are told of each other."""

import json
from typing import Any

import pytest

from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.pods.demand import ask_of_job
from dovetail_operator.manifests import rendezvous
from dovetail_operator.manifests.batch_job import Manifest, build_job
from tests.operator_.builders import make_job

INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
MEETING = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"}


def pod(**spec: Any) -> Manifest:
    job = make_job(**spec)
    built: Manifest = build_job(job, ask=ask_of_job(job, ranking=DEFAULT_RANKING), number=1)["spec"]["template"]
    return built


def environment(built: Manifest) -> dict[str, str]:
    return {
        each["name"]: each["value"] if "value" in each else each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in built["spec"]["containers"][0]["env"]
    }


def test_a_gang_is_told_where_its_first_worker_is() -> None:
    built = pod(workers=3)
    told = environment(built)
    assert {name: told[name] for name in MEETING} == {
        "MASTER_ADDR": "x-0.x",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "3",
        "RANK": INDEX,
        "LOCAL_WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }
    assert built["spec"]["subdomain"] == "x"


def test_a_single_worker_meets_nobody() -> None:
    built = pod()
    assert not MEETING & environment(built).keys()
    assert "subdomain" not in built["spec"]


def test_an_elastic_gang_of_one_is_told_that_it_is_alone() -> None:
    assert environment(pod(workers=1, minWorkers=1))["WORLD_SIZE"] == "1"


def test_a_gang_that_wants_nothing_is_told_nothing() -> None:
    job = make_job(workers=2, distributed={"framework": "None"})
    assert not rendezvous.meets(job)
    assert not MEETING & environment(pod(workers=2, distributed={"framework": "None"})).keys()


def test_torchrun_starts_a_process_for_each_gpu() -> None:
    told = environment(pod(workers=2, gpu=4, distributed={"framework": "PyTorch", "port": 1234}))
    assert {name: value for name, value in told.items() if name.startswith("PET_")} == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": INDEX,
        "PET_MASTER_ADDR": "x-0.x",
        "PET_MASTER_PORT": "1234",
    }
    assert "TF_CONFIG" not in told


@pytest.mark.parametrize("distributed", [None, {"framework": "TensorFlow", "port": 2222}])
def test_tensorflow_reads_its_cluster_and_its_own_place(distributed: dict[str, Any] | None) -> None:
    told = environment(pod(workers=2, **({"distributed": distributed} if distributed else {})))
    port = 2222 if distributed else 29500
    # As kubelet does with the variable that comes before.
    config = json.loads(told["TF_CONFIG"].replace("$(RANK)", "1"))
    assert config == {
        "cluster": {"worker": [f"x-0.x:{port}", f"x-1.x:{port}"]},
        "task": {"type": "worker", "index": 1},
    }
    names = list(told)
    assert names.index("RANK") < names.index("TF_CONFIG")


@pytest.mark.parametrize(
    ("workers", "distributed", "told"),
    [(128, None, True), (129, None, False), (129, {"framework": "TensorFlow"}, True)],
)
def test_a_large_gang_is_told_of_tensorflow_s_cluster_only_where_it_asks(
    workers: int, distributed: dict[str, Any] | None, told: bool
) -> None:
    """The variable names every worker, in the pod of every worker."""
    variables = environment(pod(workers=workers, **({"distributed": distributed} if distributed else {})))
    assert ("TF_CONFIG" in variables) is told
    assert variables["WORLD_SIZE"] == str(workers)


def test_mpi_reads_its_hosts_from_a_file() -> None:
    built = pod(workers=2, gpu=2, distributed={"framework": "MPI"})
    assert built["metadata"]["annotations"]["dovetail.dev/mpi-hostfile"] == "x-0.x slots=2\nx-1.x slots=2\n"
    told = environment(built)
    assert told["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert told["OMPI_MCA_orte_keep_fqdn_hostnames"] == told["PRTE_MCA_prte_keep_fqdn_hostnames"] == "true"
    *_, volume = built["spec"]["volumes"]
    (item,) = volume["downwardAPI"]["items"]
    assert (item["path"], item["fieldRef"]["fieldPath"]) == (
        "hostfile",
        "metadata.annotations['dovetail.dev/mpi-hostfile']",
    )
    *_, mount = built["spec"]["containers"][0]["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/etc/mpi")


def test_an_mpi_job_has_succeeded_when_its_first_worker_has() -> None:
    job = make_job(workers=2, distributed={"framework": "MPI"})
    built = build_job(job, ask=ask_of_job(job, ranking=DEFAULT_RANKING), number=1)["spec"]
    assert built["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}


@pytest.mark.parametrize("spec", [{"workers": 2}, {"workers": 1, "distributed": {"framework": "MPI"}}])
def test_any_other_job_has_succeeded_when_all_its_workers_have(spec: dict[str, Any]) -> None:
    job = make_job(**spec)
    assert "successPolicy" not in build_job(job, ask=ask_of_job(job, ranking=DEFAULT_RANKING), number=1)["spec"]


def test_a_users_variables_of_these_names_are_replaced_and_the_others_kept() -> None:
    own = [{"name": "MASTER_ADDR", "value": "elsewhere"}, {"name": "MINE", "value": "$(RANK)"}]
    built = pod(workers=2, template={"spec": {"hostname": "same", "containers": [{"name": "main", "env": own}]}})
    told = environment(built)
    assert (told["MASTER_ADDR"], told["MINE"]) == ("x-0.x", "$(RANK)")
    assert "hostname" not in built["spec"]


def test_the_service_gives_names_to_workers_that_are_not_ready_yet() -> None:
    service = rendezvous.service_of(make_job(workers=2))
    assert service["metadata"]["name"] == "x"
    assert service["metadata"]["ownerReferences"][0]["uid"] == "uid-x"
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"dovetail.dev/job": "x"},
        "ports": [{"name": "rendezvous", "port": 29500}],
    }


def test_a_gang_of_cpus_has_a_slot_on_each_host_and_a_process_in_each_pod() -> None:
    built = pod(workers=2, resources={"device": "cpu"}, distributed={"framework": "MPI"})
    assert built["metadata"]["annotations"]["dovetail.dev/mpi-hostfile"] == "x-0.x slots=1\nx-1.x slots=1\n"
    told = environment(pod(workers=2, resources={"device": "cpu"}, distributed={"framework": "PyTorch"}))
    assert told["PET_NPROC_PER_NODE"] == "1"


def test_a_user_s_volumes_and_mounts_stay_before_the_hostfile() -> None:
    own = {"containers": [{"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}, {"name": "side"}]}
    built = pod(workers=2, distributed={"framework": "MPI"}, template={"spec": own | {"volumes": [{"name": "v"}]}})
    assert built["spec"]["volumes"][0] == {"name": "v"}
    main, side = built["spec"]["containers"]
    assert main["volumeMounts"][0] == {"name": "v", "mountPath": "/v"}
    assert [mount["readOnly"] for mount in main["volumeMounts"] if mount["mountPath"] == "/etc/mpi"] == [True]
    assert "volumeMounts" not in side


def test_only_a_gang_of_mpi_has_hosts_in_its_annotations_and_hydra_s_variables() -> None:
    torch = pod(workers=2, distributed={"framework": "PyTorch"})
    assert "dovetail.dev/mpi-hostfile" not in torch["metadata"]["annotations"]
    assert not {"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"} & environment(torch).keys()
    assert "PET_NNODES" not in environment(pod(workers=2, distributed={"framework": "TensorFlow"}))
    assert environment(pod(workers=2, distributed={"framework": "MPI"}))["HYDRA_HOST_FILE"] == "/etc/mpi/hostfile"


def test_the_service_of_a_gang_has_its_own_port_and_name() -> None:
    service = rendezvous.service_of(make_job("y", workers=2, distributed={"framework": "PyTorch", "port": 1234}))
    assert (service["metadata"]["namespace"], service["metadata"]["labels"]) == ("team", {"dovetail.dev/job": "y"})
    assert service["spec"]["ports"] == [{"name": "rendezvous", "port": 1234}]
    assert rendezvous.hosts(make_job("y", workers=3)) == ["y-0.y", "y-1.y", "y-2.y"]
