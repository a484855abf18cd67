# Installs Glovebox on Windows from a release: downloads, checks, places one
# program, and says what to do next.
#
#   irm https://github.com/glovebox-dev/glovebox/releases/latest/download/install.ps1 | iex
#   .\install.ps1 -Dir C:\Tools -Version v1.2.3
[CmdletBinding()]
param(
    [string]$Dir = $(if ($env:GLOVEBOX_INSTALL_DIR) { $env:GLOVEBOX_INSTALL_DIR } else { Join-Path $env:LOCALAPPDATA 'Programs\Glovebox' }),
    [string]$Version = $env:GLOVEBOX_VERSION,
    [string]$Url = $env:GLOVEBOX_RELEASES,
    [switch]$Yes,
    [switch]$NoConfigure
)
# The public key of releases, which a release writes here.
$Key = 'RELEASE_KEY_GOES_HERE'
$Repository = 'https://github.com/glovebox-dev/glovebox'

function Install-Glovebox {
    # In here, so that the session of whoever pipes this to iex stays as it was.
    Set-StrictMode -Version Latest
    $ErrorActionPreference = 'Stop'
    $ProgressPreference = 'SilentlyContinue'
    if (-not $Url) {
        $Url = "$Repository/releases/latest/download"
        if ($Version) { $Url = "$Repository/releases/download/$Version" }
    }
    $Url = $Url.TrimEnd('/')
    if ($Url -notmatch '^(https://|http://(127\.0\.0\.1|localhost):)') { throw "$Url is not https" }

    # Windows PowerShell 5 does not offer TLS 1.2 on old systems by itself.
    [Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
    $machine = if ($env:PROCESSOR_ARCHITEW6432) { $env:PROCESSOR_ARCHITEW6432 } else { $env:PROCESSOR_ARCHITECTURE }
    $arch = switch ($machine) {
        'AMD64' { 'amd64' }
        'ARM64' { 'arm64' }
        default { throw "there is no program for $machine" }
    }
    $archive = "glovebox_windows_$arch.zip"
    $temp = Join-Path ([IO.Path]::GetTempPath()) ("glovebox-" + [Guid]::NewGuid())
    New-Item -ItemType Directory -Path $temp | Out-Null
    try {
        Write-Host "downloading $Url/$archive"
        foreach ($name in 'checksums.txt', $archive) {
            Invoke-WebRequest -UseBasicParsing -Uri "$Url/$name" -OutFile (Join-Path $temp $name)
        }
        if ($Key -like 'RELEASE_*') {
            Write-Host 'not checked: the signature, as this installer is not one of a release'
        } elseif (Get-Command minisign -ErrorAction SilentlyContinue) {
            Invoke-WebRequest -UseBasicParsing -Uri "$Url/checksums.txt.minisig" -OutFile (Join-Path $temp 'checksums.txt.minisig')
            & minisign -V -q -P $Key -m (Join-Path $temp 'checksums.txt')
            if ($LASTEXITCODE -ne 0) { throw 'the signature of checksums.txt is not ours; nothing was installed' }
        } else {
            Write-Host 'not checked: the signature, as minisign is not here (the checksum is)'
        }
        $want = $null
        foreach ($line in Get-Content (Join-Path $temp 'checksums.txt')) {
            $sum, $name = $line -split '\s+', 2
            if ($name -ceq $archive) { $want = $sum }
        }
        if (-not $want) { throw "checksums.txt does not name $archive; nothing was installed" }
        $got = (Get-FileHash -Algorithm SHA256 (Join-Path $temp $archive)).Hash.ToLowerInvariant()
        if ($got -ne $want) { throw "the checksum of $archive is $got, and must be $want; nothing was installed" }

        Expand-Archive -Path (Join-Path $temp $archive) -DestinationPath (Join-Path $temp 'unpacked')
        $fresh = Join-Path $temp 'unpacked\glovebox.exe'
        & $fresh version | Out-Null
        if ($LASTEXITCODE -ne 0) { throw 'the program does not start on this machine; nothing was installed' }
        New-Item -ItemType Directory -Force -Path $Dir | Out-Null
        $program = Join-Path $Dir 'glovebox.exe'
        # A program that runs can be renamed, but not replaced.
        if (Test-Path $program) {
            Remove-Item -Force -ErrorAction SilentlyContinue "$program.old"
            Move-Item -Force $program "$program.old"
        }
        try { Copy-Item $fresh $program } catch {
            if (Test-Path "$program.old") { Move-Item -Force "$program.old" $program }
            throw
        }
        Remove-Item -Force -ErrorAction SilentlyContinue "$program.old"
    } finally {
        Remove-Item -Recurse -Force $temp
    }
    Write-Host "installed: $program, $(& $program version)"

    $path = [Environment]::GetEnvironmentVariable('Path', 'User')
    if (($path -split ';') -notcontains $Dir) {
        [Environment]::SetEnvironmentVariable('Path', "$path;$Dir".TrimStart(';'), 'User')
        $env:Path = "$env:Path;$Dir"
        Write-Host "$Dir was added to your Path; new terminals see it"
    }
    Write-Host ''
    & $program doctor
    Write-Host ''
    if ($NoConfigure) { Write-Host 'To use it in MCP clients: glovebox install' }
    elseif ($Yes) { & $program install --all }
    else { & $program install }
}

Install-Glovebox
