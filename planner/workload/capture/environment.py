"""Environment of a process that runs the user's code: variables needed by Python and Keras, without credentials.

It is an allow-list, so that credentials in variables of unknown name are withheld as well. Variables that locate
credential files of an SDK point to an empty folder. The files themselves stay readable: this is not a sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ...errors import UsageError

_NAMES = frozenset({
    "COLUMNS", "FORCE_COLOR", "HOME", "LANG", "LANGUAGE", "LINES", "LOGNAME", "NO_COLOR", "PATH", "PWD", "SHELL",
    "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER",
    "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "KAGGLEHUB_CACHE",
    "MPLBACKEND", "MPLCONFIGDIR", "NLTK_DATA", "TFDS_DATA_DIR", "TFHUB_CACHE_DIR", "TF_CONFIG",
    "TOKENIZERS_PARALLELISM", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "GPUPLAN_CACHE_DIR", "GPUPLAN_DATA_DIR",
})  # fmt: skip
_PREFIXES = (
    "BLIS_", "CUBLAS_", "CUDA", "CUDNN_", "DYLD_", "GOMP_", "HIP_", "HSA_", "JAX_", "KERAS_", "KMP_", "LC_",
    "LIBTPU_", "MKL_", "NCCL_", "NUMBA_", "NUMEXPR_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTHON", "PYTORCH_",
    "ROCM_", "ROCR_", "TF_CPP_", "TF_CUDA_", "TF_CUDNN_", "TF_DATA_", "TF_DETERMINISTIC_", "TF_DISABLE_",
    "TF_ENABLE_", "TF_FORCE_", "TF_GPU_", "TF_NUM_", "TF_USE_", "TF_XLA_", "TORCH", "TPU_", "TRITON_", "VECLIB_",
    "XLA_",
)  # fmt: skip
_PROXIES = frozenset({"all_proxy", "ftp_proxy", "http_proxy", "https_proxy", "no_proxy"})
# Names withheld among the variables that are passed because of their prefix.
_SECRET = re.compile(
    r"TOKEN|SECRET|PASS(WORD|WD|PHRASE)?(_|$)|CREDENTIAL|(^|_)(API)?KEYS?(_|$)|(^|_)AUTH(_|$)"
)


def build_script_environment(
    *, variables: tuple[str, ...] = (), empty: Path, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Build the environment of the user's code.

    Args:
        variables: Additional variables to pass unchanged, set or not (see `require_variables`).
        empty: Empty folder in which SDKs look for credentials.
        environ: Environment of this process.
    """
    seen = {
        name: value
        for name, value in environ.items()
        if name in _NAMES or (name.startswith(_PREFIXES) and not _SECRET.search(name.upper()))
    }
    seen |= {
        name: _strip_credentials(environ[name]) for name in environ if name.lower() in _PROXIES
    } | _hide_credential_files(empty)
    for name in variables:
        seen.pop(name, None)
        if name in environ:
            seen[name] = environ[name]
    return seen


def require_variables(variables: tuple[str, ...], *, environ: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError for a variable to pass that is neither set nor defined by gpuplan."""
    for name in variables:
        if name not in environ and name not in _hide_credential_files(Path()):
            raise UsageError(
                f"script_env: the variable `{name}` is not set",
                hint=f"set it first, as in `export {name.partition('=')[0]}=VALUE`, and give its name alone",
            )


def _strip_credentials(proxy: str) -> str:
    """Return a proxy's address without user and password.

    Example:
        >>> _strip_credentials("http://user:pw@proxy.example:3128"), _strip_credentials("user:pw@proxy:3128")
        ('http://proxy.example:3128', 'proxy:3128')
    """
    if "@" not in proxy:
        return proxy
    if "://" not in proxy:
        return proxy.rpartition("@")[2]
    parts = urlsplit(proxy)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _hide_credential_files(empty: Path) -> dict[str, str]:
    """Return variables that keep SDKs from credential files and metadata servers."""
    folder, nothing = str(empty), os.devnull
    return {
        "AWS_CONFIG_FILE": nothing,
        "AWS_SHARED_CREDENTIALS_FILE": nothing,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CLOUDSDK_CONFIG": folder,
        "BOTO_CONFIG": nothing,
        "NO_GCE_CHECK": "true",
        "AZURE_CONFIG_DIR": folder,
        "DOCKER_CONFIG": folder,
        "KUBECONFIG": nothing,
        "NETRC": nothing,
        "KAGGLE_CONFIG_DIR": folder,
        "HF_TOKEN_PATH": str(empty / "token"),
        "WANDB_MODE": "disabled",  # it would prompt for a key
    }
