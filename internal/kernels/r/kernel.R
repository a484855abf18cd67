# The R kernel: runs the guest's requests in one lasting interpreter. R 3.5 or
# newer with its base packages. A line of bootstrap reads it from the pipe of
# requests, and calls it with a function that takes bytes from that pipe. The
# protocol is described in the documentation of the Go package.
function(take) {
  MAX_PART <- 32768L
  MAX_TEXT <- 1048576L
  MAX_STACK <- 65536L
  MAX_PLOTS <- 20L
  MAX_PICTURE <- 4194304L

  if (!l10n_info()[["UTF-8"]]) suppressWarnings(Sys.setlocale("LC_CTYPE", "C.UTF-8"))
  events <- file("/proc/self/fd/4", "wb", raw = TRUE)
  key <- ""
  current <- NULL # the request run that is served

  # Requests: strings, each after its length.

  receive <- function() {
    body <- take(readBin(take(4L), "integer", size = 4L, endian = "big"))
    out <- character(0)
    at <- 0L
    while (at + 4L <= length(body)) {
      n <- readBin(body[at + 1:4], "integer", size = 4L, endian = "big")
      text <- body[at + 4L + seq_len(n)]
      text <- rawToChar(text[text != as.raw(0)])
      Encoding(text) <- "UTF-8"
      out <- c(out, text)
      at <- at + 4L + n
    }
    values <- out[seq_along(out) %% 2L == 0L]
    names(values) <- out[seq_along(out) %% 2L == 1L]
    values
  }

  get <- function(request, name) unname(request[match(name, names(request))])

  # variables returns the fields whose names begin so, without that beginning.
  variables <- function(request, kind) {
    found <- request[startsWith(names(request), kind)]
    names(found) <- substring(names(found), nchar(kind) + 1L)
    found
  }

  # Events: JSON.

  controls <- intToUtf8(c(1:31, 127), multiple = TRUE)

  valid <- function(text) {
    text <- iconv(enc2utf8(text), "UTF-8", "UTF-8", sub = "byte")
    if (is.na(text)) "NA" else text
  }

  string <- function(text) {
    text <- valid(text)
    text <- gsub("\\", "\\\\", text, fixed = TRUE)
    text <- gsub("\"", "\\\"", text, fixed = TRUE)
    text <- gsub("\n", "\\n", text, fixed = TRUE)
    if (grepl("[\001-\037\177]", text)) {
      for (c in controls) text <- gsub(c, sprintf("\\u%04x", utf8ToInt(c)), text, fixed = TRUE)
    }
    paste0("\"", text, "\"")
  }

  object <- function(values) {
    parts <- vapply(values, function(v) {
      if (is.list(v)) object(v) else if (is.logical(v)) tolower(v) else if (is.numeric(v)) format(v, scientific = FALSE) else string(v)
    }, "")
    paste0("{", paste0("\"", names(values), "\":", parts, collapse = ","), "}")
  }

  send <- function(event) {
    flush(stdout())
    flush(stderr())
    data <- charToRaw(object(event))
    at <- 0L
    suspendInterrupts(while (at < length(data)) {
      n <- min(MAX_PART, length(data) - at)
      mark <- if (at + n < length(data)) "+" else "."
      message <- c(charToRaw(paste0(key, mark)), data[at + seq_len(n)])
      writeBin(c(writeBin(length(message), raw(), size = 4L, endian = "big"), message), events)
      flush(events)
      at <- at + n
    })
  }

  short <- function(text, most) {
    if (nchar(text, "bytes") <= most) return(text)
    paste0(substr(text, 1L, most %/% 4L), "\n... (", nchar(text) - most %/% 4L, " more characters)")
  }

  # Results.

  alphabet <- c(LETTERS, letters, 0:9, "+", "/")

  base64 <- function(bytes) {
    n <- length(bytes)
    if (!n) return("")
    bytes <- as.integer(c(bytes, raw((3L - n %% 3L) %% 3L)))
    of <- function(i) bytes[seq.int(i, length(bytes), 3L)]
    a <- of(1L); b <- of(2L); c <- of(3L)
    out <- alphabet[rbind(a %/% 4L, a %% 4L * 16L + b %/% 16L, b %% 16L * 4L + c %/% 64L, c %% 64L) + 1L]
    if (n %% 3L) out[seq.int(length(out) - 2L + n %% 3L, length(out))] <- "="
    paste(out, collapse = "")
  }

  printed <- function(value) {
    lines <- utils::capture.output(if (isS4(value)) methods::show(value) else print(value))
    short(paste(lines, collapse = "\n"), MAX_TEXT)
  }

  # Plots go to files of a directory, a page each, until the end of the run.

  plots <- NULL # the directory
  devices <- integer(0)

  openDevice <- function(...) {
    if (is.null(plots) || !dir.exists(plots)) {
      plots <<- tempfile("plots")
      dir.create(plots, recursive = TRUE)
    }
    file <- file.path(plots, sprintf("%05d-%%05d.png", length(devices)))
    if (capabilities("cairo")) grDevices::png(file, width = 1200, height = 900, res = 150, type = "cairo")
    else grDevices::png(file, width = 1200, height = 900, res = 150)
    devices <<- c(devices, grDevices::dev.cur())
  }

  showPlots <- function() {
    if (is.null(plots)) return()
    for (d in devices) if (d %in% grDevices::dev.list() && names(grDevices::dev.list())[match(d, grDevices::dev.list())] == "png") grDevices::dev.off(d)
    files <- sort(list.files(plots, full.names = TRUE))
    for (file in utils::head(files, MAX_PLOTS)) {
      size <- file.size(file)
      if (is.na(size) || size == 0 || size > MAX_PICTURE) next
      picture <- base64(readBin(file, "raw", size))
      send(list(ev = "result", id = current$id, main = FALSE, data = list("image/png" = picture, "text/plain" = "<plot>")))
    }
    if (length(files) > MAX_PLOTS) cat(sprintf("%d more plots are not shown\n", length(files) - MAX_PLOTS), file = stderr())
    unlink(plots, recursive = TRUE)
    plots <<- NULL
    devices <<- integer(0)
  }

  # What user code finds in place of functions that need a terminal, or that
  # would end the interpreter.

  ask <- function(prompt) {
    if (is.null(current)) stop("no run can be asked for input")
    if (!current$answers) stop("input needs an answer, but nobody can answer in this run: pass the value in the code instead", call. = FALSE)
    send(list(ev = "input", id = current$id, prompt = short(prompt, 4096L), password = FALSE))
    repeat {
      answer <- suspendInterrupts(receive())
      if (get(answer, "op") == "input" && get(answer, "id") == as.character(current$id)) break
    }
    if (get(answer, "eof") == "1") NULL else sub("\n$", "", get(answer, "text"))
  }

  leave <- function(save = "default", status = 0, runLast = TRUE) {
    stop(structure(class = c("gloveboxExit", "condition"), list(message = "quit", call = NULL, status = as.integer(status))))
  }

  own <- list(
    quit = leave, q = leave,
    closeAllConnections = function() {
      while (sink.number() > 0L) sink()
      ours <- c(events, environment(take)$requests)
      for (n in setdiff(getAllConnections(), c(0:2, ours))) close(getConnection(n))
      invisible()
    },
    readline = function(prompt = "") {
      line <- ask(as.character(prompt))
      if (is.null(line)) "" else line
    }
  )

  # Errors.

  callText <- function(call) short(paste(deparse(call, nlines = 3L), collapse = "\n   "), 1000L)

  # stackOf returns the calls of the user's code that led to an error.
  stackOf <- function(calls) {
    ours <- vapply(calls, function(c) identical(c, quote(eval(expressions[[i]], globalenv()))), NA)
    if (any(ours)) calls <- calls[-seq_len(max(which(ours)))]
    ends <- vapply(calls, function(c) identical(c[[1L]], quote(.handleSimpleError)), NA)
    calls[seq_len(if (any(ends)) which(ends)[1L] - 1L else max(length(calls) - 1L, 0L))]
  }

  describe <- function(e, calls, line, text) {
    kinds <- setdiff(class(e), c("simpleError", "error", "condition"))
    name <- if (length(kinds)) kinds[1L] else "Error"
    value <- conditionMessage(e)
    value <- short(if (length(value)) paste(value, collapse = "\n") else "", MAX_STACK)
    call <- conditionCall(e)
    where <- if (is.null(call) || identical(call[[1L]], quote(eval))) "" else paste0(" in ", callText(call))
    traceback <- paste0(name, where, ": ", value)
    if (length(calls)) {
      calls <- utils::tail(calls, 50L)
      lines <- paste0(seq_along(calls), ": ", vapply(calls, callText, ""))
      traceback <- paste0(traceback, "\nTraceback:\n", paste(lines, collapse = "\n"))
    }
    send(list(ev = "error", id = current$id, name = name, value = value, traceback = short(traceback, MAX_STACK), line = line, text = short(text, 1000L)))
  }

  # Runs.

  execute <- function(request) {
    current <<- list(id = as.integer(get(request, "id")), answers = get(request, "stdin") == "1")
    on.exit(current <<- NULL)
    base <- variables(request, "base ")
    if (length(base)) do.call(Sys.setenv, as.list(base))
    env <- variables(request, "env ")
    before <- Sys.getenv(names(env), NA, names = TRUE)
    if (length(env)) do.call(Sys.setenv, as.list(env))
    code <- get(request, "code")
    lines <- strsplit(code, "\n", fixed = TRUE)[[1L]]
    end <- list(ev = "end", id = current$id, status = "ok")
    calls <- list()
    line <- 0L
    depth <- sink.number()
    tryCatch({
      expressions <- parse(text = code, keep.source = TRUE, encoding = "UTF-8")
      places <- attr(expressions, "srcref")
      for (i in seq_along(expressions)) {
        line <- as.integer(places[[i]])[1L]
        shown <- withCallingHandlers(withVisible(eval(expressions[[i]], globalenv())), error = function(e) calls <<- sys.calls())
        if (!shown$visible) next
        if (i == length(expressions)) end$result <- list("text/plain" = printed(shown$value))
        else if (isS4(shown$value)) methods::show(shown$value)
        else print(shown$value)
      }
      allowInterrupts(NULL)
    }, gloveboxExit = function(e) {
      end$exit_code <<- e$status
      if (!identical(e$status, 0L)) end$status <<- "exit"
    }, interrupt = function(e) {
      end$status <<- "interrupted"
      describe(structure(class = c("interrupt", "condition"), list(message = "the run was interrupted", call = NULL)), list(), line, "")
    }, error = function(e) {
      end$status <<- "error"
      if (!line) {
        at <- regmatches(conditionMessage(e), regexec("^<text>:([0-9]+):", conditionMessage(e)))[[1L]]
        if (length(at) == 2L) line <<- as.integer(at[2L])
      }
      describe(e, stackOf(calls), line, if (line > 0L && line <= length(lines)) lines[line] else "")
    })
    while (sink.number() > depth) sink()
    tryCatch(showPlots(), error = function(e) cat("plots are not shown:", conditionMessage(e), "\n", file = stderr()))
    for (name in names(env)) {
      if (is.na(before[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, as.list(before[name]))
    }
    send(end)
  }

  prepare <- function(request) {
    for (name in variables(request, "module ")) suppressWarnings(requireNamespace(name, quietly = TRUE))
  }

  init <- receive()
  key <- get(init, "key")
  options(device = openDevice, warn = 1L, menu.graphics = FALSE)
  attach(own, name = "glovebox", warn.conflicts = FALSE)
  prepare(init)
  send(list(ev = "ready", language = "r", version = paste(R.version$major, R.version$minor, sep = ".")))
  repeat tryCatch({
    request <- suspendInterrupts(receive())
    switch(get(request, "op"),
      run = execute(request),
      prepare = { prepare(request); send(list(ev = "prepared")) },
      ping = send(list(ev = "pong")))
  }, interrupt = function(e) NULL)
}
