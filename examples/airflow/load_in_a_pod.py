"""A DAG that loads a stream by the lake's image in a pod: the ConfigMap has the lake's file, the Secret what it refers to."""

from datetime import datetime

from airflow import DAG
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from kubernetes.client import models as k8s

with DAG("bank_load", schedule="*/15 * * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    KubernetesPodOperator(
        task_id="load",
        name="bank-load",
        image="registry.example/headrace-lake:0.2.0",
        cmds=["headrace"],
        arguments=["lake", "load", "bank", "--config", "/etc/headrace/lake.toml"],
        env_from=[k8s.V1EnvFromSource(secret_ref=k8s.V1SecretEnvSource(name="headrace-lake"))],
        volumes=[k8s.V1Volume(name="file", config_map=k8s.V1ConfigMapVolumeSource(name="headrace-lake"))],
        volume_mounts=[k8s.V1VolumeMount(name="file", mount_path="/etc/headrace", read_only=True)],
        container_resources=k8s.V1ResourceRequirements(
            requests={"cpu": "1", "memory": "3Gi"}, limits={"memory": "4Gi"}
        ),
    )
